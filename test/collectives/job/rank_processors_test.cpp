// SPDX-License-Identifier: MIT
// Processes agree on whether a job has processors for all of its ranks. All hosts are this machine.
#include "collectives/job/rank_processors.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "collectives/topology/machine.h"

namespace lockstep::test {
namespace rank_processors_test {

using namespace std::chrono_literals;

// Returns what each process finds.
std::vector<collectives::RankProcessors> found(const std::vector<int>& host) {
  const auto views = collectives::in_memory_bootstrap(host, 60s);
  std::vector<collectives::RankProcessors> all(host.size());
  std::vector<std::thread> processes;
  for (std::size_t p = 0; p < host.size(); ++p)
    processes.emplace_back([&, p] {
      all[p] = processors_of_ranks(collectives::rank_of_each_process(*views[p]), "processors");
    });
  for (std::thread& process : processes) process.join();
  return all;
}

TEST(RankProcessors, HostsOfOneMachineShareItsProcessors) {
  const std::size_t cores = std::size_t(collectives::machine().cores);
  for (const int hosts : {1, 2}) {
    std::vector<int> host(cores, 0);
    if (hosts == 2) host.back() = 1;
    if (cores == 1) host.front() = 0;
    for (const auto& one : found(host)) EXPECT_TRUE(one.enough) << hosts;
    host.push_back(host.back());
    for (const auto& one : found(host)) {
      EXPECT_FALSE(one.enough) << hosts;
      EXPECT_EQ(one.of_host, int(cores));
    }
  }
}

TEST(RankProcessors, HostsOfOneMachineAreCounted) {
  for (const auto& one : found({0, 0})) EXPECT_EQ(one.hosts_of_machine, 1);
  for (const auto& one : found({0, 1, 2, 1})) EXPECT_EQ(one.hosts_of_machine, 3);
}

}  // namespace rank_processors_test
}  // namespace lockstep::test
