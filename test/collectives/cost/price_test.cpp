// SPDX-License-Identifier: MIT
#include "collectives/cost/price.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/algorithms/algorithms.h"
#include "collectives/topology/example_topologies.h"

namespace lockstep::collectives {
namespace price_test {

constexpr std::size_t kKiB = 1024, kMiB = kKiB * kKiB;

// Prices of a reduced topology agree with those of the whole. Sixteen hosts can still be simulated
// whole, so every algorithm is priced both ways.
TEST(Price, ThePictureAgreesWithTheWhole) {
  const Topology example = example_topology("16x8");
  const Topology sixteen = equal_hosts(16, 2, example.hosts[0].costs, example.wire, 8);
  for (const Algorithm& algorithm : all_reduce_algorithms()) {
    if (!algorithm.refusal(sixteen.host_of_rank()).empty()) continue;
    for (const std::size_t bytes : {256 * kKiB, 4 * kMiB, 64 * kMiB}) {
      const Price whole = price(algorithm, sixteen, bytes, {.exact_steps = 1e18});
      const Price reduced = price(algorithm, sixteen, bytes, {.exact_steps = 0});
      EXPECT_FALSE(whole.reduced);
      EXPECT_TRUE(reduced.reduced);
      EXPECT_NEAR(reduced.seconds / whole.seconds, 1, 0.1) << algorithm.name << " " << bytes;
      EXPECT_NEAR(reduced.wire_bytes / whole.wire_bytes, 1, 0.1) << algorithm.name << " " << bytes;
    }
  }
}

// Prices also agree far from eight hosts, where the scaling laws matter more.
TEST(Price, ThePictureAgreesFarAway) {
  const Topology example = example_topology("3x1");
  const Topology hosts = equal_hosts(64, 1, example.hosts[0].costs, example.wire);
  for (const char* name : {"ring", "halving_doubling"}) {
    for (const std::size_t bytes : {4 * kMiB, 64 * kMiB}) {
      const Price whole = price(find_algorithm(name), hosts, bytes, {.exact_steps = 1e18});
      const Price reduced = price(find_algorithm(name), hosts, bytes, {.exact_steps = 0});
      EXPECT_NEAR(reduced.seconds / whole.seconds, 1, 0.1) << name << " " << bytes;
      EXPECT_NEAR(reduced.wire_bytes / whole.wire_bytes, 1, 0.02) << name << " " << bytes;
    }
  }
}

// Nothing takes less time than any of its parts, measured or not. Reasons are made of these parts.
TEST(Price, IsNoLessThanItsParts) {
  for (const char* name : {"1x4", "1x8", "3x1", "4x4", "5x3", "8x8", "16x8", "128x8"}) {
    Topology topology = example_topology(name);
    for (const double burst : {0.0, 1e6}) {
      topology.wire.burst = burst;
      for (const Algorithm& algorithm : all_reduce_algorithms()) {
        if (!algorithm.refusal(topology.host_of_rank()).empty()) continue;
        for (const std::size_t bytes : {kKiB, 512 * kKiB, 32 * kMiB}) {
          const Price p = price(algorithm, topology, bytes);
          const double longest =
              std::max({p.wire_seconds, p.part_seconds, p.work_seconds, p.round_seconds});
          EXPECT_LE(longest, p.seconds * (1 + 1e-9))
              << name << " " << algorithm.name << " " << bytes;
          EXPECT_GT(longest, 0);
        }
      }
    }
  }
}

// The slowest of unequal hosts determines the time.
TEST(Price, UnequalHostsTakeAsLongAsTheSlowest) {
  const Topology example = example_topology("3x1");
  Topology topology = equal_hosts(12, 1, example.hosts[0].costs, example.wire);
  const Algorithm& ring = find_algorithm("ring");
  const double equal = price(ring, topology, kMiB, {.exact_steps = 0}).seconds;
  topology.hosts[11].costs.passes = {{0, 1e8, 1e8}};
  const Price whole = price(ring, topology, kMiB);
  EXPECT_FALSE(whole.reduced);
  EXPECT_GT(whole.seconds, 2 * equal);
  const Price reduced = price(ring, topology, kMiB, {.exact_steps = 0});
  EXPECT_TRUE(reduced.reduced);
  EXPECT_GE(reduced.seconds, 0.9 * whole.seconds);
  EXPECT_LE(reduced.seconds, 2 * whole.seconds);
}

// No plan of thousands of ranks is made, whatever the cluster is. The test counts ranks of plans,
// not seconds.
TEST(Price, NoPlanOfThousandsOfRanksIsMadeWhole) {
  const Topology example = example_topology("3x1");
  static std::size_t most = 0;
  const Algorithm counted{.name = "ring",
                          .refusal = [](const std::vector<int>&) { return std::string(); },
                          .make =
                              [](const Request& request) {
                                most = std::max(most, request.host.size());
                                return ring_all_reduce(request);
                              }};
  for (const bool equal : {true, false}) {
    Topology topology = equal_hosts(1024, 4, example.hosts[0].costs, example.wire);
    if (!equal) topology.hosts[11].costs.passes = {{0, 1e8, 1e8}};
    for (const std::size_t bytes : {256 * std::size_t(1), kMiB, 256 * kMiB})
      EXPECT_TRUE(price(counted, topology, bytes).reduced) << equal << " " << bytes;
  }
  EXPECT_LE(most, 64u);
}

// A fused update reads weights, and reads and writes its slots, once per job; a separate one once
// per rank. The wire carries weights instead of sums.
TEST(Price, OfAnUpdateIsItsPassesOverMemory) {
  constexpr double kRanks = 4;
  const Topology host = example_topology("1x4");
  const Algorithm local{.name = "local",
                        .refusal = [](const std::vector<int>&) { return std::string(); },
                        .make = local_update};
  for (const std::size_t slots : {0, 1, 2}) {
    const double once = double(kMiB) * double(1 + 2 * slots);
    EXPECT_EQ(
        price(find_algorithm("direct"), host, kMiB, {.update = true, .slots = slots}).memory_bytes,
        2 * kRanks * kMiB + once);
    EXPECT_EQ(price(local, host, kMiB, {.slots = slots}).memory_bytes, kRanks * (2 * kMiB + once));
  }
  const Topology hosts = example_topology("3x1");
  const Price sum = price(find_algorithm("ring"), hosts, kMiB);
  const Price fused = price(find_algorithm("ring"), hosts, kMiB, {.update = true});
  EXPECT_EQ(fused.wire_bytes, sum.wire_bytes);
  EXPECT_GT(fused.seconds, sum.seconds);
  EXPECT_GT(fused.memory_bytes, sum.memory_bytes);
}

TEST(Price, LinesGoThroughTheirPoints) {
  const Price a{.seconds = 1, .wire_bytes = 10}, b{.seconds = 3, .wire_bytes = 10, .rounds = 4};
  EXPECT_EQ(along(a, b, 0).seconds, 1);
  EXPECT_EQ(along(a, b, 1).rounds, 4);
  EXPECT_EQ(along(a, b, 2).seconds, 5);
  EXPECT_EQ(along(a, b, 2).wire_bytes, 10);
}

}  // namespace price_test
}  // namespace lockstep::collectives
