// SPDX-License-Identifier: MIT
#include "test/collectives/nccl/nccl_job.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "collectives/nccl/hierarchical.h"
#include "collectives/nccl/nccl_communicator.h"

namespace lockstep::collectives::nccl {

void Rank::wait() const {
  communicator.wait([this] { return fake.idle(stream); });
}

Errors run_job(FakeNccl& fake, const std::vector<int>& hosts, const Options& options,
               const std::function<void(const Rank&)>& body) {
  const auto bootstraps = in_memory_bootstrap(hosts, std::chrono::seconds(30));
  Errors errors(hosts.size());
  const auto work = [&](std::size_t rank) {
    try {
      Bootstrap& bootstrap = *bootstraps[rank];
      std::unique_ptr<Communicator> communicator;
      auto flat = NcclCommunicator::open(
          bootstrap, [&] { return fake.functions(); }, options);
      if (options.hierarchical) {
        communicator = std::make_unique<Hierarchical>(std::move(flat), bootstrap.hosts());
      } else {
        communicator = std::move(flat);
      }
      const int stream = 0;  // its address is the stream
      body({*communicator, bootstrap, fake, const_cast<int*>(&stream), int(rank),
            int(hosts.size())});
    } catch (const engine::Error& error) {
      errors[rank] = error;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) threads.emplace_back(work, rank);
  }
  EXPECT_EQ(fake.communicators(), 0);
  EXPECT_EQ(fake.registrations(), 0);
  EXPECT_EQ(fake.allocations(), 0);
  EXPECT_EQ(fake.misuses(), std::vector<std::string>());
  return errors;
}

void run_well(FakeNccl& fake, const std::vector<int>& hosts, const Options& options,
              const std::function<void(const Rank&)>& body) {
  for (const auto& error : run_job(fake, hosts, options, body))
    EXPECT_FALSE(error) << error->what();
  EXPECT_EQ(fake.aborted(), 0);
}

}  // namespace lockstep::collectives::nccl
