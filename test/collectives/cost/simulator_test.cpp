// SPDX-License-Identifier: MIT
#include "collectives/cost/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/steps.h"
#include "collectives/topology/example_topologies.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace simulator_test {

using testing::HasSubstr;

// Returns a host on which nothing costs anything; each test sets the costs that it is about.
HostCosts free_host() {
  HostCosts costs;
  costs.signal = costs.step = costs.block = 0;
  costs.passes = {{0, 1e15, 1e15}};
  return costs;
}
WireCosts free_wire() {
  return {.latency = 0, .bandwidth = 1e15, .processor = 0, .message = 0};
}
WireCosts only_bandwidth(double bandwidth) {
  WireCosts wire = free_wire();
  wire.bandwidth = bandwidth;
  return wire;
}

Request request(const Topology& topology, std::size_t bytes) {
  Request request;
  request.name = "sum";
  request.subject = {0, bytes / sizeof(float)};
  request.host = topology.host_of_rank();
  return request;
}

double ring_seconds(const Topology& topology, std::size_t bytes) {
  return simulate(ring_all_reduce(request(topology, bytes)), topology).seconds;
}
double direct_seconds(const Topology& topology, std::size_t bytes) {
  return simulate(direct_all_reduce(request(topology, bytes)), topology).seconds;
}

constexpr std::size_t kMiB = std::size_t(1) << 20;

// Each host sends 2 (n - 1) / n S and receives as much at the same time: the directions have
// separate budgets.
TEST(Simulator, RingFillsTheWireBothWays) {
  for (const int n : {2, 3, 4, 8, 16}) {
    const Topology topology = equal_hosts(n, 1, free_host(), only_bandwidth(1e9));
    const double bytes = 64 * kMiB, bound = 2.0 * (n - 1) / n * bytes / 1e9;
    EXPECT_NEAR(ring_seconds(topology, 64 * kMiB) / bound, 1, 0.05) << n;
    EXPECT_NEAR(simulate(ring_all_reduce(request(topology, 64 * kMiB)), topology).wire_bytes,
                2.0 * (n - 1) / n * bytes, 0.01 * bytes);
  }
}

// An idle wire takes a burst at once, and the next burst only after as long a pause.
TEST(Simulator, ABurstLeavesAtOnce) {
  WireCosts wire = only_bandwidth(1e9);
  wire.burst = 1e6;
  const Topology topology = equal_hosts(2, 1, free_host(), wire);
  const auto seconds = [&](const std::vector<double>& messages) {
    Plan plan = empty_plan(request(topology, 64 * kMiB), "messages", 1);
    for (const double bytes : messages) {
      const auto count = std::size_t(bytes) / sizeof(float);
      Lane &from = plan.lanes[0][0], &to = plan.lanes[1][0];
      from.push_back(post_send(count, {0, Space::kGradient, 0}, 1));
      from.push_back(wait(int(from.size()) - 1));
      to.push_back(post_receive(count, {1, Space::kGradient, 0}, 0));
      to.push_back(wait(int(to.size()) - 1));
    }
    return simulate(plan, topology).seconds;
  };
  EXPECT_NEAR(seconds({1e6}), 0, 1e-9);
  EXPECT_NEAR(seconds({4e6}), 3e-3, 1e-9);
  EXPECT_NEAR(seconds({1e6, 1e6, 2e6}), 3e-3, 1e-9);
  EXPECT_NEAR(seconds({0.5e6, 0.5e6, 1e6}), 1e-3, 1e-9);
}

// Messages of one host share its outgoing wire: two at once, to two hosts, take twice as long.
TEST(Simulator, RanksOfAHostShareItsWire) {
  const Topology topology = equal_hosts(3, 2, free_host(), only_bandwidth(1e9));
  Request all = request(topology, 8 * kMiB);
  Plan plan = empty_plan(all, "pairs", 1);
  for (const int rank : {0, 1}) {
    const int to = 2 + 2 * rank;
    plan.lanes[std::size_t(rank)][0] = {
        post_send(all.subject.size(), {rank, Space::kGradient, 0}, to), wait(0)};
    plan.lanes[std::size_t(to)][0] = {
        post_receive(all.subject.size(), {to, Space::kScratch, 0}, rank), wait(0)};
  }
  EXPECT_NEAR(simulate(plan, topology).seconds, 16.0 * kMiB / 1e9, 1e-6);
  EXPECT_EQ(simulate(plan, topology).wire_bytes, 16.0 * kMiB);
}

// Incoming messages share the wire and the thread that receives them: here two hosts send to a
// third.
TEST(Simulator, MessagesToOneHostShareItsWireAndItsRanksThread) {
  const double seconds = 8.0 * kMiB / 1e9;
  for (const WireCosts& wire : {only_bandwidth(1e9), WireCosts{0, 1e15, 1e-9, 0}}) {
    const Topology topology = equal_hosts(3, 1, free_host(), wire);
    Request all = request(topology, 8 * kMiB);
    Plan plan = empty_plan(all, "two to one", 2);
    for (const int lane : {0, 1}) {
      const int from = lane + 1;
      plan.lanes[std::size_t(from)][std::size_t(lane)] = {
          post_send(all.subject.size(), {from, Space::kGradient, 0}, 0), wait(0)};
      plan.lanes[0][std::size_t(lane)] = {
          post_receive(all.subject.size(), {0, Space::kScratch, 0}, from), wait(0)};
    }
    EXPECT_NEAR(simulate(plan, topology).seconds, 2 * seconds, 1e-6);
  }
}

// A rank has one thread, however many lanes and cores there are. The lowest lane comes first.
TEST(Simulator, ARankHasOneThread) {
  HostCosts costs = free_host();
  costs.passes = {{0, 1e9, 1e15}};
  const Topology host = equal_hosts(1, 1, costs, {}, 8);
  Request all = request(host, kMiB);
  Plan plan = empty_plan(all, "two lanes", 2);
  for (const int lane : {1, 0})
    plan.lanes[0][std::size_t(lane)] = {reduce(all.subject.size(), {{0, Space::kGradient, 0}},
                                               {{0, Space::kWeight, 0}}, Epilogue::kNone)};
  const Simulation run = simulate(plan, host, {.record = true});
  EXPECT_NEAR(run.seconds, 4.0 * kMiB / 1e9, 1e-6);
  ASSERT_EQ(run.activities.size(), 2u);
  EXPECT_EQ(run.activities[0].lane, 0);
}

// Every element is read once from each rank and written once into each, by all ranks at once.
TEST(Simulator, DirectMovesTwoPassesOfEachRanksMemory) {
  for (const int n : {2, 3, 8}) {
    HostCosts costs = free_host();
    costs.passes = {{0, 10e9, 20e9}};
    const Topology topology = equal_hosts(1, n, costs, {}, n);
    const double moved = 2.0 * n * 48 * kMiB;
    EXPECT_NEAR(direct_seconds(topology, 48 * kMiB) / (moved / 20e9), 1, 0.01) << n;
    EXPECT_NEAR(simulate(direct_all_reduce(request(topology, 48 * kMiB)), topology).memory_bytes,
                moved, 1);
  }
}

// If a rank stores only into its own memory, it gets lines of others no faster than it can wait for
// them. If it stores into others, it takes over their lines.
TEST(Simulator, WhatIsFetchedHasAPaceOfItsOwn) {
  HostCosts costs = free_host();
  costs.passes = {{0, 40e9, 1e15, 5e9}};
  const Topology topology = equal_hosts(1, 2, costs, {}, 2);
  const Request all = request(topology, kMiB);
  const auto seconds = [&](std::vector<int> from, std::vector<int> to) {
    Plan plan = empty_plan(all, "one reduction", 1);
    plan.lanes[0][0] = {reduce(all.subject.size(), everywhere(from, Space::kGradient, 0),
                               everywhere(to, Space::kGradient, 0), Epilogue::kNone)};
    return simulate(plan, topology).seconds;
  };
  EXPECT_NEAR(seconds({0, 1}, {0}), kMiB / 5e9 + 2 * kMiB / 40e9, 1e-9);
  EXPECT_NEAR(seconds({1}, {0}), kMiB / 5e9 + kMiB / 40e9, 1e-9);
  EXPECT_NEAR(seconds({0, 1}, {0, 1}), 4 * kMiB / 40e9, 1e-9);
  EXPECT_NEAR(seconds({0}, {0, 1}), 3 * kMiB / 40e9, 1e-9);
}

TEST(Simulator, ACallAndAReductionCostSomethingBesideTheirBytes) {
  HostCosts costs = free_host();
  costs.call = 1e-6, costs.reduction = 1e-7;
  EXPECT_NEAR(direct_seconds(equal_hosts(1, 2, costs, {}, 2), kMiB), 1.1e-6, 1e-8);
  WireCosts wire = free_wire();
  wire.call = 1e-5;
  EXPECT_NEAR(ring_seconds(equal_hosts(2, 1, free_host(), wire), 4096), 1e-5, 1e-9);
  EXPECT_NEAR(direct_seconds(equal_hosts(1, 2, costs, wire, 2), kMiB), 1.1e-6, 1e-8);
}

// One core cannot fill the bus. Two ranks on one core share it.
TEST(Simulator, MoreRanksThanCoresShareThem) {
  HostCosts costs = free_host();
  costs.passes = {{0, 10e9, 1e15}};
  const double two = direct_seconds(equal_hosts(1, 2, costs, {}, 2), 16 * kMiB);
  const double one = direct_seconds(equal_hosts(1, 2, costs, {}, 1), 16 * kMiB);
  EXPECT_NEAR(two, 2.0 * 16 * kMiB / 10e9, 1e-6);
  EXPECT_NEAR(one / two, 2, 0.001);
}

TEST(Simulator, LatencyIsCountedByRounds) {
  const Topology topology = equal_hosts(4, 1, free_host(), {1e-3, 1e15, 0, 0});
  const Simulation ring = simulate(ring_all_reduce(request(topology, 64 * 1024)), topology);
  EXPECT_EQ(ring.rounds, 6);
  EXPECT_NEAR(ring.seconds, 6e-3, 1e-6);
  HostCosts costs = free_host();
  costs.signal = 1e-3;
  const Topology host = equal_hosts(1, 4, costs, {}, 4);
  const Simulation direct = simulate(direct_all_reduce(request(host, 64 * 1024)), host);
  EXPECT_EQ(direct.rounds, 2);
  EXPECT_NEAR(direct.seconds, 2e-3, 1e-6);
}

// Only messages that wait for each other are counted as rounds. Here one host waits for two
// messages that do not.
TEST(Simulator, RoundsAreOfThoseThatWaitForEachOther) {
  const Topology topology = equal_hosts(3, 1, free_host(), {1e-3, 1e15, 0, 0});
  const Simulation run = simulate(halving_doubling_all_reduce(request(topology, 1024)), topology);
  EXPECT_EQ(run.rounds, 2);
  EXPECT_NEAR(run.round_seconds, 2e-3, 1e-9);
  EXPECT_NEAR(run.seconds, 2e-3, 1e-6);
}

TEST(Simulator, TellsWhatAHostNeedsLongest) {
  HostCosts costs = free_host();
  costs.passes = {{0, 10e9, 1e15}};
  const double bytes = 16 * kMiB;
  const auto direct = [&](int cores) {
    const Topology topology = equal_hosts(1, 2, costs, {}, cores);
    return simulate(direct_all_reduce(request(topology, 16 * kMiB)), topology);
  };
  EXPECT_EQ(direct(1).part, HostPart::kProcessors);
  EXPECT_NEAR(direct(1).part_seconds, 4 * bytes / 10e9, 1e-6);
  EXPECT_NEAR(direct(1).work_seconds, 2 * bytes / 10e9, 1e-6);
  costs.passes = {{0, 10e9, 10e9}};
  EXPECT_EQ(direct(4).part, HostPart::kMemory);
  EXPECT_NEAR(direct(4).part_seconds, 4 * bytes / 10e9, 1e-6);
  const auto part = [](const char* name, const auto& algorithm) {
    const Topology topology = example_topology(name);
    return simulate(algorithm(request(topology, 16 * kMiB)), topology).part;
  };
  EXPECT_EQ(part("1x8", direct_all_reduce), HostPart::kPort);  // over PCI Express
  EXPECT_EQ(part("4x4", hierarchical_all_reduce), HostPart::kLink);
}

// A rank's thread pays for its messages at both ends. Both ends move the bytes at the same time.
TEST(Simulator, ProcessorTimeOfMessagesIsPaid) {
  const Topology topology = equal_hosts(2, 1, free_host(), {0, 1e15, 1e-9, 1e-3});
  Request all = request(topology, kMiB);
  Plan plan = empty_plan(all, "one message", 1);
  plan.lanes[0][0] = {post_send(all.subject.size(), {0, Space::kGradient, 0}, 1), wait(0)};
  plan.lanes[1][0] = {post_receive(all.subject.size(), {1, Space::kScratch, 0}, 0), wait(0)};
  EXPECT_NEAR(simulate(plan, topology).seconds, 2e-3 + 1e-9 * kMiB, 1e-6);
}

// Devices use their link if there is one, and otherwise share the port. Both directions work at
// once.
TEST(Simulator, DevicesUseTheirLinksAndPorts) {
  HostCosts costs = free_host();
  costs.link = LinkClass::kNvlink;
  costs.links = {{0, 1, 20e9}};
  costs.port = 5e9;
  const auto copy = [&](int from, int to) {
    const Topology topology = equal_hosts(1, 3, costs, {}, 1, "cuda");
    Request all = request(topology, 10 * kMiB);
    Plan plan = empty_plan(all, "copy", 1);
    plan.lanes[std::size_t(to)][0] = {
        reduce(all.subject.size(), {{from, Space::kGradient, 0}}, {{to, Space::kGradient, 0}})};
    return simulate(plan, topology).seconds;
  };
  EXPECT_NEAR(copy(0, 1), 10 * kMiB / 20e9, 1e-6);
  EXPECT_NEAR(copy(1, 0), 10 * kMiB / 20e9, 1e-6);
  EXPECT_NEAR(copy(0, 2), 10 * kMiB / 5e9, 1e-6);
  EXPECT_NEAR(copy(2, 2), 0, 1e-6);
  // Over ports alone, each device sends and receives (n - 1) / n S for others' sums and for its
  // own.
  costs.links.clear();
  const Topology four = equal_hosts(1, 4, costs, {}, 1, "cuda");
  EXPECT_NEAR(direct_seconds(four, 64 * kMiB) / (2 * 0.75 * 64 * kMiB / 5e9), 1, 0.01);
}

// Passes over memory are slower beyond the caches. Costs between two measured sizes are
// interpolated.
TEST(Simulator, PassesAreSlowerOutOfCache) {
  HostCosts costs = free_host();
  costs.passes = {{2.0 * kMiB, 40e9, 80e9}, {32.0 * kMiB, 10e9, 20e9}};
  const Topology host = equal_hosts(1, 2, costs, {}, 2);
  EXPECT_NEAR(direct_seconds(host, kMiB), 4.0 * kMiB / 80e9, 1e-6);
  EXPECT_NEAR(direct_seconds(host, 16 * kMiB), 64.0 * kMiB / 20e9, 1e-6);
  const MemoryPass half = costs.pass(17.0 * kMiB);
  EXPECT_NEAR(1 / half.core, (1 / 40e9 + 1 / 10e9) / 2, 1e-15);
}

TEST(Simulator, TheRecordHoldsEveryReduction) {
  const Topology host = equal_hosts(1, 3, HostCosts(), {}, 3);
  const Simulation run =
      simulate(direct_all_reduce(request(host, 3 * kMiB)), host, {.record = true});
  ASSERT_EQ(run.activities.size(), 3u);
  for (const Activity& activity : run.activities) {
    EXPECT_EQ(activity.action, Action::kReduce);
    EXPECT_LT(activity.begin, activity.end);
    EXPECT_LE(activity.end, run.seconds);
  }
  EXPECT_EQ(run.ended.size(), 3u);
}

TEST(Simulator, AStepThatWaitsForEverIsNamed) {
  const Topology host = equal_hosts(1, 2, HostCosts(), {}, 2);
  Plan plan = empty_plan(request(host, 4096), "stuck", 1);
  plan.lanes[0][0] = {arrive(), await({1}, 1)};
  plan.lanes[1][0] = {await({0}, 2)};
  try {
    simulate(plan, host);
    ADD_FAILURE();
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("rank 0 lane 0 waits for ever at step 1: await 1 of lane 0 "
                                        "of r1"));
  }
  const Topology two = equal_hosts(2, 1, HostCosts(), {});
  Plan unmet = empty_plan(request(two, 4096), "unmet", 1);
  unmet.lanes[1][0] = {post_receive(1024, {1, Space::kGradient, 0}, 0), wait(0)};
  EXPECT_THROW(simulate(unmet, two), engine::Error);
  EXPECT_THROW(simulate(unmet, host), engine::Error) << "other hosts";
}

TEST(Simulator, IsTheSameEveryTime) {
  const Topology topology = example_topology("4x4");
  const Plan plan = ring_all_reduce(request(topology, kMiB));
  EXPECT_EQ(simulate(plan, topology).seconds, simulate(plan, topology).seconds);
}

}  // namespace simulator_test
}  // namespace lockstep::collectives
