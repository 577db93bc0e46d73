// SPDX-License-Identifier: MIT
#include "collectives/topology/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "collectives/topology/processor_map.h"

namespace lockstep::collectives {
namespace binding_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Binding, ReplicasThatFillTheProcessorsGetTheirOwn) {
  const std::vector<HostProcess> processes{{{0, 1, 2, 5, 6, 7}, 1}, {{0, 1, 2, 5, 6, 7}, 2}};
  const Binding first = plan_binding(processes, 0, {}, 2, 64),
                second = plan_binding(processes, 1, {}, 2, 64);
  EXPECT_THAT(first.processors, ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(second.processors, ElementsAre(ElementsAre(2, 5), ElementsAre(6, 7)));
  EXPECT_EQ(first.warning + second.warning, "");
}

TEST(Binding, IdleProcessorsLeaveTheChoiceToTheKernel) {
  const std::vector<HostProcess> processes{{{0, 1, 2, 3}, 3}};
  EXPECT_THAT(plan_binding(processes, 0, {}, 1, 64).processors,
              ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_EQ(plan_binding(processes, 0, {}, 1, 64).warning, "");
}

TEST(Binding, MoreThreadsThanProcessorsTakeTurnsAndItIsSaid) {
  const std::vector<HostProcess> processes{{{0, 1}, 2}, {{0, 1}, 2}};
  const Binding binding = plan_binding(processes, 1, {}, 1, 64);
  EXPECT_THAT(binding.processors, ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_THAT(binding.warning, HasSubstr("4 replicas of 1 thread share 2 processors"));
}

TEST(Binding, WhatALauncherChoseIsKept) {
  const std::vector<HostProcess> processes{{{0}, 1}, {{1}, 1}};
  EXPECT_THAT(plan_binding(processes, 1, {}, 1, 64).processors, ElementsAre(ElementsAre(1)));
  EXPECT_EQ(plan_binding(processes, 1, {}, 1, 64).warning, "");
  const std::vector<HostProcess> narrow{{{0}, 2}, {{1}, 2}};
  EXPECT_EQ(plan_binding(narrow, 0, {}, 1, 64).warning,
            "2 replicas of 1 thread share 1 processor: they take turns");
}

TEST(Binding, WhatKeepsAProcessToFewProcessorsIsNamed) {
  EXPECT_EQ(why_confined({.allowed = 4, .online = 4}), "");
  EXPECT_EQ(why_confined({.allowed = 4, .online = 4, .quota = 8}), "");
  EXPECT_EQ(why_confined({.allowed = 4, .online = 8, .quota = 1.5, .bound_by_mpirun = true}),
            "a CPU quota, as containers have, allows 1.5 of 4 processors");
  EXPECT_THAT(why_confined({.allowed = 1, .online = 8, .bound_by_mpirun = true}),
              HasSubstr("mpirun bound this process to 1 of 8 processors; give it --bind-to none"));
  EXPECT_THAT(why_confined({.allowed = 1, .online = 8}),
              testing::AllOf(HasSubstr("1 of 8 processors, by taskset"),
                             testing::Not(HasSubstr("mpirun"))));
}

TEST(Binding, AQuotaCountsLikeFewerProcessors) {
  const std::vector<HostProcess> processes{{{0, 1, 2, 3}, 4}};
  EXPECT_THAT(plan_binding(processes, 0, {}, 1, 2).warning,
              HasSubstr("4 replicas of 1 thread share 2 processors"));
  EXPECT_THAT(plan_binding(processes, 0, {}, 1, 2).processors, testing::Each(IsEmpty()));
  EXPECT_EQ(plan_binding(processes, 0, {}, 1, 4).warning, "");
}

// Returns two NUMA nodes of four cores with two hyperthreads each. As Linux does, it numbers all
// first hyperthreads before all second ones.
MachineMap two_nodes() {
  MachineMap map;
  for (int number = 0; number < 16; ++number)
    map.processors.push_back({number, number % 8, number % 8 / 4 * 4, number % 8 / 4});
  map.nodes = {{0, std::size_t(1) << 30}, {1, std::size_t(1) << 30}};
  return map;
}

// Returns each replica's processors if each replica is a process of its own.
std::vector<std::vector<int>> bound(const MachineMap& map, const std::vector<int>& allowed,
                                    int replicas, int threads = 1) {
  const std::vector<HostProcess> processes(std::size_t(replicas), HostProcess{allowed, 1});
  std::vector<std::vector<int>> all;
  for (const Binding& one : plan_bindings(processes, map, threads, 64))
    all.push_back(one.processors[0]);
  return all;
}

// Checks what holds for every number of ranks. No two ranks share a processor, and no rank leaves
// the set that it was given. As many as possible have their own core, and ranks follow the order of
// the nodes.
void expect_lawful(const MachineMap& map, const std::vector<int>& allowed, int ranks) {
  SCOPED_TRACE(ranks);
  const auto all = bound(map, allowed, ranks);
  std::set<int> taken, cores;
  std::map<int, std::set<int>> ranks_of_core;
  std::optional<int> before;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<int>& mine = all[std::size_t(rank)];
    ASSERT_FALSE(mine.empty());
    for (const int processor : mine) {
      EXPECT_TRUE(taken.insert(processor).second) << "processor " << processor << " has two ranks";
      EXPECT_TRUE(std::ranges::binary_search(allowed, processor)) << processor;
      const auto place = part_of(map, std::vector<int>{processor}).processors[0];
      ranks_of_core[place.core].insert(rank);
    }
    const auto node = node_of(map, mine);
    ASSERT_TRUE(node) << "rank " << rank << " is on several nodes";
    EXPECT_GE(*node, before.value_or(0));
    before = node;
  }
  std::set<int> all_cores;
  for (const PlacedProcessor& one : part_of(map, allowed).processors) all_cores.insert(one.core);
  const auto shared =
      std::ranges::count_if(ranks_of_core, [](const auto& c) { return c.second.size() > 1; });
  EXPECT_EQ(shared, std::max(0, ranks - int(all_cores.size())));
}

TEST(Binding, RanksHaveCoresOfTheirOwnAndFillANodeBeforeTheNext) {
  const MachineMap map = two_nodes();
  const std::vector<int> all = numbers(map);
  for (int ranks = 1; ranks <= 16; ++ranks) expect_lawful(map, all, ranks);
  EXPECT_THAT(bound(map, all, 2), ElementsAre(ElementsAre(0, 1, 8, 9), ElementsAre(2, 3, 10, 11)))
      << "both on the first node, whose cores they divide among themselves";
  EXPECT_THAT(bound(map, all, 4), ElementsAre(ElementsAre(0, 8), ElementsAre(1, 9),
                                              ElementsAre(2, 10), ElementsAre(3, 11)));
  EXPECT_EQ(bound(map, all, 8)[4], (std::vector<int>{4, 12}));
  EXPECT_EQ(bound(map, all, 12)[0], std::vector<int>{0});
  EXPECT_EQ(bound(map, all, 12)[1], std::vector<int>{8}) << "the sibling";
  EXPECT_EQ(bound(map, all, 12)[8], (std::vector<int>{4, 12})) << "the last four share no core";
  EXPECT_EQ(bound(map, all, 16)[3], std::vector<int>{9});
}

TEST(Binding, MoreRanksThanHyperthreadsTakeTurns) {
  const MachineMap map = two_nodes();
  EXPECT_THAT(bound(map, numbers(map), 17), testing::Each(IsEmpty()));
  const std::vector<HostProcess> processes(17, HostProcess{numbers(map), 1});
  EXPECT_THAT(plan_binding(processes, 3, map, 1, 64).warning,
              HasSubstr("17 replicas of 1 thread share 16 processors"));
}

TEST(Binding, RanksStayInsideTheSetsThatTheyWereGiven) {
  const MachineMap map = two_nodes();
  const std::vector<int> some{1, 2, 5, 6, 7, 10, 13};  // cores 1-2 | 5-7, some with siblings
  for (int ranks = 1; ranks <= 7; ++ranks) expect_lawful(map, some, ranks);
  EXPECT_THAT(bound(map, some, 3),
              ElementsAre(ElementsAre(1), ElementsAre(2, 10), ElementsAre(5, 6, 7, 13)));
  // A launcher may give each process a node.
  const std::vector<HostProcess> given{{{0, 1, 2, 3, 8, 9, 10, 11}, 2},
                                       {{4, 5, 6, 7, 12, 13, 14, 15}, 2}};
  EXPECT_THAT(plan_binding(given, 1, map, 1, 8).processors,
              ElementsAre(ElementsAre(4, 5, 12, 13), ElementsAre(6, 7, 14, 15)));
}

TEST(Binding, AReplicasThreadsStayOnOneNodeWhereThereIsRoom) {
  const MachineMap map = two_nodes();
  const auto two = bound(map, numbers(map), 2, 3);
  EXPECT_EQ(node_of(map, two[0]), 0);
  EXPECT_EQ(node_of(map, two[1]), 1) << "three more cores are not left on the first node";
  const auto full = bound(map, numbers(map), 2, 8);
  EXPECT_EQ(node_of(map, full[0]), 0) << "all hyperthreads of a node";
  EXPECT_EQ(node_of(map, full[1]), 1);
}

TEST(Binding, HyperthreadsOfOneNodeAreNoCoresOfTheirOwn) {
  MachineMap map = part_of(two_nodes(), std::vector<int>{0, 1, 8, 9});
  EXPECT_THAT(bound(map, numbers(map), 2), ElementsAre(ElementsAre(0, 8), ElementsAre(1, 9)));
}

TEST(Binding, TextForOtherProcesses) {
  const std::vector<int> some{0, 3, 17};
  EXPECT_EQ(to_text(some), "0,3,17");
  EXPECT_EQ(processors_of("0,3,17"), some);
  EXPECT_THAT(processors_of(""), IsEmpty());
  EXPECT_THAT(processors_of("1,x"), IsEmpty());
}

TEST(Binding, AThreadRunsWhereItIsBound) {
  const std::vector<int> allowed = allowed_processors();
  ASSERT_FALSE(allowed.empty());
  const std::vector<int> last{allowed.back()};
  std::vector<int> found;
  std::thread([&] {
    bind_this_thread(last);
    found = allowed_processors();
  }).join();
  EXPECT_EQ(found, last);
  EXPECT_EQ(allowed_processors(), allowed);  // the others are free as before
}

}  // namespace binding_test
}  // namespace lockstep::collectives
