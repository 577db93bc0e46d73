// SPDX-License-Identifier: MIT
#include "collectives/cost/memory_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/cost/calibration.h"
#include "collectives/run/executor.h"
#include "collectives/topology/machine.h"

namespace lockstep::collectives {
namespace memory_access_test {

using testing::HasSubstr;

constexpr double kMiB = 1 << 20;

HostCosts decided(const std::vector<StoreTimes>& times) {
  HostCosts costs;
  decide_stores(costs, times);
  return costs;
}

TEST(MemoryAccess, ALimitLiesBetweenWhatIsSlowerAndWhatIsFaster) {
  const HostCosts costs = decided({{64 * kMiB, 16 * kMiB, 3.0, 2.0},
                                   {16 * kMiB, 4 * kMiB, 1.0, 1.5},
                                   {4 * kMiB, 1 * kMiB, 0.1, 0.2}});
  EXPECT_NEAR(costs.stream_touched, 32 * kMiB, 1);
  EXPECT_NEAR(costs.stream_results, 8 * kMiB, 1);
  // A smaller size changes nothing if it seems faster by chance.
  EXPECT_EQ(decided({{64 * kMiB, 16 * kMiB, 3.0, 2.0},
                     {16 * kMiB, 4 * kMiB, 1.0, 1.5},
                     {4 * kMiB, 1 * kMiB, 0.2, 0.1}}),
            costs);
}

TEST(MemoryAccess, PiecesThatTheNextStepReadsStayInTheCaches) {
  const HostCosts costs =
      decided({{8 * kMiB, 0.25 * kMiB, 3.0, 2.0}, {2 * kMiB, 0.06 * kMiB, 3.0, 2.0}});
  EXPECT_EQ(costs.stream_touched, 4 * kMiB);
  EXPECT_EQ(costs.stream_results, 0.5 * kMiB);
}

TEST(MemoryAccess, TimesThatDoNotTellDecideNothing) {
  for (const auto& times : {std::vector<StoreTimes>{},
                            {{64 * kMiB, 16 * kMiB, 2.0, 1.99}, {16 * kMiB, 4 * kMiB, 1.0, 1.01}},
                            {{64 * kMiB, 16 * kMiB, 2.0, 3.0}, {16 * kMiB, 4 * kMiB, 1.0, 0.5}}})
    EXPECT_EQ(decided(times), HostCosts());
}

TEST(MemoryAccess, WhatWasMeasuredIsUsedElseTheLastCache) {
  HostCosts costs;
  const MemoryAccess assumed = memory_access(costs);
  EXPECT_FALSE(assumed.measured);
  EXPECT_EQ(assumed.results, ExecutorOptions().stream_from);
  EXPECT_EQ(assumed.touched, last_cache() > 0 ? last_cache() : ExecutorOptions().cache);
  EXPECT_THAT(sentence(assumed), HasSubstr("for results from 2 MiB on"));
  costs.stream_touched = 24 * kMiB, costs.stream_results = 3 * kMiB;
  EXPECT_EQ(memory_access(costs), (MemoryAccess{3 << 20, 24 << 20, true}));
  EXPECT_EQ(
      sentence(memory_access(costs)),
      "for results from 3 MiB on, and for updates that touch more than 24 MiB (measured); sums "
      "in place prefetch lines to write them");
  costs.read_ahead = true;
  EXPECT_THAT(sentence(memory_access(costs)), HasSubstr("lines to read them"));
  EXPECT_TRUE(memory_access({.read_ahead = true}).read_ahead) << "whatever else is not known";
}

TEST(MemoryAccess, CalibrationTakesThemFromItsProbes) {
  Topology topology;
  topology.hosts = {{.name = "h"}};
  topology.processes = {{.replicas = 2}};
  topology.ranks = {{}, {}};
  const auto sample = [](Probe::Kind kind, double bytes, double seconds) {
    return Sample{{kind, bytes, 1}, {{seconds, seconds}}};
  };
  const Topology found = calibrated(
      topology,
      {sample(Probe::Kind::kKept, 32 * kMiB, 2e-3), sample(Probe::Kind::kStreamed, 32 * kMiB, 1e-3),
       sample(Probe::Kind::kKept, 8 * kMiB, 1e-3), sample(Probe::Kind::kStreamed, 8 * kMiB, 2e-3)},
      {2});
  EXPECT_NEAR(found.hosts[0].costs.stream_touched, 32 * kMiB, 1) << "of both ranks";
  EXPECT_NEAR(found.hosts[0].costs.stream_results, 4 * kMiB, 1) << "a half of half the bytes";
  EXPECT_EQ(topology_from_json(to_json(found)), found);
}

// Sums prefetch lines for reading if that is clearly faster. Stored costs keep this.
TEST(MemoryAccess, LinesAreAskedForToBeReadWhereThatIsClearlyFaster) {
  Topology topology;
  topology.hosts = {{.name = "a"}, {.name = "b"}};
  topology.processes = {{.replicas = 2}, {.host = 1, .first_rank = 2, .replicas = 2}};
  topology.ranks = {{}, {}, {.process = 1, .host = 1}, {.process = 1, .host = 1}};
  const auto sample = [](Probe::Kind kind, double first, double second) {
    return Sample{{kind, 64 << 10, 1}, {{first, first / 2, second / 2, second}}};
  };
  const Topology found = calibrated(topology,
                                    {sample(Probe::Kind::kWriteAhead, 1.0e-5, 1.0e-5),
                                     sample(Probe::Kind::kReadAhead, 0.9e-5, 0.99e-5)},
                                    {2, 2});
  EXPECT_TRUE(found.hosts[0].costs.read_ahead);
  EXPECT_FALSE(found.hosts[1].costs.read_ahead) << "by a hundredth";
  EXPECT_EQ(topology_from_json(to_json(found)), found);
  EXPECT_FALSE(calibrated(topology, {sample(Probe::Kind::kReadAhead, 1e-6, 1e-6)}, {2, 2})
                   .hosts[0]
                   .costs.read_ahead)
      << "nothing to compare with";
}

// A host of one rank, or of more ranks than are added at once, decides nothing: it measures noise.
TEST(MemoryAccess, HostsWhoseSumsAskForNothingDecideNothing) {
  const std::vector<Sample> samples{
      {{Probe::Kind::kWriteAhead, 64 << 10, 1}, {{2e-5, 2e-5, 2e-5, 2e-5, 2e-5}}},
      {{Probe::Kind::kReadAhead, 64 << 10, 1}, {{1e-5, 1e-5, 1e-5, 1e-5, 1e-5}}}};
  EXPECT_FALSE(better_read_ahead(samples, {0}));
  EXPECT_TRUE(better_read_ahead(samples, {0, 1}));
  EXPECT_TRUE(better_read_ahead(samples, {0, 1, 2, 3}));
  EXPECT_FALSE(better_read_ahead(samples, {0, 1, 2, 3, 4}));
  for (const std::vector<int>& host : {std::vector<int>{0}, {0, 0, 0, 0, 0}})
    for (const ProbeGroup group = line_probe(host); const auto& lanes : group.step[1].plan.lanes)
      for (const Step& step : lanes[0]) EXPECT_NE(step.action, Action::kReduce);
}

}  // namespace memory_access_test
}  // namespace lockstep::collectives
