// SPDX-License-Identifier: MIT
// The communicator uses the planner's algorithms, with the same costs on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "collectives/communicator/communicator.h"
#include "collectives/job/calibration.h"
#include "collectives/topology/topology.h"
#include "engine/cpu/cpu_device.h"

namespace lockstep::test {
namespace communicator_choice_test {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using collectives::Communicator;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

// Runs `body` for each process on its own thread. All hosts are this machine.
void together(const std::vector<int>& host,
              const std::function<void(std::size_t, collectives::Bootstrap&)>& body) {
  const auto bootstraps = collectives::in_memory_bootstrap(host, 20s);
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < host.size(); ++rank)
    threads.emplace_back([&, rank] { body(rank, *bootstraps[rank]); });
}

struct Said {
  std::vector<std::string> explained, algorithm;
};

// Returns what communicators on these hosts report, and checks sums on all of them.
Said on(const std::vector<int>& host, const collectives::CommunicatorOptions& options = {}) {
  const auto device = engine::cpu_device();
  Said said{std::vector<std::string>(host.size()), std::vector<std::string>(host.size())};
  together(host, [&](std::size_t rank, collectives::Bootstrap& bootstrap) {
    Communicator c(bootstrap, device->ops(engine::DType::kFloat32, {.threads = 1}), options);
    for (const std::size_t count : {1, 3000, 600000}) {
      std::vector<float> values(count, float(rank + 1));
      c.all_reduce(std::span(values));
      const auto sum = float(host.size() * (host.size() + 1) / 2);
      EXPECT_EQ(std::count(values.begin(), values.end(), sum), std::ptrdiff_t(count));
    }
    said.explained[rank] = c.explain();
    said.algorithm[rank] = c.algorithm();
    c.barrier();
  });
  return said;
}

TEST(CommunicatorChoice, OnOneHostIsBetweenThoseThatAddInTheOrderOfRanksAndRoundOnce) {
  for (const std::vector<int>& host : {std::vector{0, 0}, {0, 0, 0, 0}}) {
    const Said said = on(host);
    EXPECT_THAT(said.algorithm, Each("direct"));
    EXPECT_THAT(said.explained, Each(said.explained[0]));
    EXPECT_THAT(said.explained[0],
                HasSubstr("all-reduce: one_shot from 256 bytes on, because one_shot "));
    EXPECT_THAT(said.explained[0], HasSubstr("; direct from "));
    EXPECT_THAT(said.explained[0], HasSubstr("\ncosts of ranks and links: assumed"));
    for (const char* other : {"ring", "halving", "hierarchical"})
      EXPECT_THAT(said.explained[0], Not(HasSubstr(other)));
  }
}

TEST(CommunicatorChoice, BetweenHostsIsThePlanners) {
  for (const std::vector<int>& host : {std::vector{0, 0, 1}, {0, 0, 1, 1}, {0, 1, 2}}) {
    const Said said = on(host);
    collectives::Topology topology;
    together(host, [&](std::size_t rank, collectives::Bootstrap& bootstrap) {
      const auto found = collectives::discover(bootstrap, {"cpu:0"});
      if (rank == 0) topology = found;
    });
    const std::size_t long_sum = std::size_t(2) << 20;  // the longest piece of an area
    const auto planned = collectives::plan_all_reduce(
        topology, collectives::all_reduce_algorithms(), {}, {long_sum / 2, long_sum * 2});
    EXPECT_THAT(said.algorithm, Each(planned.choose(long_sum).algorithm));
    EXPECT_THAT(said.explained, Each(said.explained[0]));
  }
}

TEST(CommunicatorChoice, GoesByCostsThatWereMeasuredBefore) {
  const std::vector<int> host{0, 0};
  collectives::CommunicatorOptions options;
  options.cost_cache =
      fs::temp_directory_path() / fmt::format("lockstep-communicator-{}", getpid());
  fs::remove_all(options.cost_cache);
  EXPECT_THAT(on(host, options).explained, Each(HasSubstr("links: assumed")));
  EXPECT_FALSE(fs::exists(options.cost_cache)) << "nothing is measured";
  const auto device = engine::cpu_device();
  together(host, [&](std::size_t, collectives::Bootstrap& bootstrap) {
    const auto ops = device->ops(engine::DType::kFloat32, {.threads = 1});
    collectives::CalibrationOptions measure;
    measure.cache = options.cost_cache;
    measure.most_touched = std::size_t(1) << 20;
    measure.waited = [] { return 0.0; };  // kept even if other work disturbs it
    collectives::Job job(collectives::rank_of_each_process(bootstrap), {});
    collectives::calibrate(job, collectives::discover(bootstrap, {"cpu:0"}), *ops, measure);
  });
  EXPECT_THAT(on(host, options).explained, Each(HasSubstr("links: measured")));
  options.cost_cache /= "another";
  EXPECT_THAT(on(host, options).explained, Each(HasSubstr("links: assumed")));
  options.cost_cache = options.cost_cache.parent_path();
  fs::remove_all(options.cost_cache);
}

}  // namespace communicator_choice_test
}  // namespace lockstep::test
