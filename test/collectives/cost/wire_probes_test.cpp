// SPDX-License-Identifier: MIT
// Probes between hosts, on simulated wires. A slow wire does not take longer, and its samples still
// suffice to find its costs.
#include "collectives/cost/wire_probes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "collectives/cost/simulator.h"
#include "collectives/topology/example_topologies.h"

namespace lockstep::collectives {
namespace wire_probes_test {

constexpr double kSeconds = 0.12;

struct Measured {
  std::vector<Sample> samples = {};
  double seconds = 0;       // all probes and the rendezvous before them
  double longest_once = 0;  // longest single probe
  double meeting = 0;
  int groups = 0;
};

// The factor on the simulated time of the n-th repetition of this probe.
using Disturbance = std::function<double(const Probe&, std::size_t n)>;

// Measures as collectives/job/probe_run.h would, on a machine that takes the simulated times.
Measured measured(
    const Topology& topology,
    const Disturbance& disturbance = [](const Probe&, std::size_t) { return 1.0; }) {
  const WireProbes probes(topology.host_of_rank(), kSeconds);
  Measured done;
  std::map<std::pair<Probe::Kind, double>, std::size_t> often;
  while (const auto group = probes.next(done.samples)) {
    if (++done.groups == 12) {
      ADD_FAILURE() << "there is always something more to measure";
      break;
    }
    EXPECT_LE(group->elements, probes.largest().elements);
    EXPECT_LE(group->scratch, probes.largest().scratch);
    EXPECT_TRUE(group->wire);
    const double meeting = done.meeting = simulate(group->step[0].plan, topology).seconds;
    std::vector<Sample> more;
    for (std::size_t i = 0; i < group->probes.size(); ++i) {
      const Simulation run = simulate(group->step[i + 1].plan, topology);
      const Probe& probe = group->probes[i];
      EXPECT_GE(probe.repetitions, 1);
      more.push_back({probe, {std::size_t(probe.repetitions), run.ended}});
      std::size_t& n = often[{probe.kind, probe.size}];
      for (auto& of_ranks : more.back().seconds) {
        const double factor = disturbance(probe, n++);
        for (double& seconds : of_ranks) seconds *= factor;
      }
      done.seconds += probe.repetitions * (meeting + run.seconds);
      done.longest_once = std::max(done.longest_once, meeting + run.seconds);
    }
    add_samples(done.samples, std::move(more));
  }
  return done;
}

HostCosts host() {
  HostCosts costs;
  costs.signal = 0.4e-6, costs.step = 0.03e-6, costs.call = 0.7e-6;
  return costs;
}

Topology hosts(int count, int ranks, const WireCosts& wire) {
  return equal_hosts(count, ranks, host(), wire, ranks);
}

TEST(WireProbes, ASlowWireTakesNoLongerThanItsTime) {
  for (const auto& [count, ranks] : {std::pair(2, 1), {4, 2}, {8, 1}})
    for (const double bits : {1e6, 1e7, 1e8, 1e9, 1e10, 1e11})
      for (const double burst : {0.0, 128e3, 4e6})
        for (const double latency : {2e-6, 50e-6, 1e-3}) {
          const Measured done = measured(
              hosts(count, ranks, {.latency = latency, .bandwidth = bits / 8, .burst = burst}));
          // The time of a probe is unknown before it has run once. A long probe runs once more, so
          // that there are two samples. Each probe has to run once, after a rendezvous.
          EXPECT_LE(done.seconds, kSeconds + 2 * done.longest_once + 16 * done.meeting)
              << count << "x" << ranks << ", " << bits << " bit/s, burst " << burst << ", latency "
              << latency << ", " << done.groups << " groups";
          // A wire does not run far longer probes, unless its bursts hide its rate.
          if (burst == 0) {
            EXPECT_LE(done.longest_once, kSeconds / 2) << bits << " bit/s";
          }
        }
}

// A fast wire runs all probes, each as often as allowed.
TEST(WireProbes, AFastWireIsMeasuredOften) {
  const Measured done = measured(hosts(2, 1, {.latency = 5e-6, .bandwidth = 1e10}));
  for (const Sample& sample : done.samples) {
    const Probe::Kind kind = sample.probe.kind;
    EXPECT_GE(sample.seconds.size(), kind == Probe::Kind::kBulk     ? 4u
                                     : kind == Probe::Kind::kAtOnce ? 12u
                                                                    : 2u);
  }
  EXPECT_EQ(done.samples.back().probe.size, double(8 << 20));
  EXPECT_LE(done.seconds, kSeconds);
}

TEST(WireProbes, WhatIsMeasuredTellsTheWire) {
  for (const auto& [count, ranks] : {std::pair(2, 1), {3, 2}})
    for (const double bits : {1e8, 1e9, 1e10}) {
      const WireCosts wire{.latency = 40e-6,
                           .bandwidth = bits / 8,
                           .processor = 0.2e-9,
                           .message = 3e-6,
                           .burst = 40e3};
      const Topology truth = hosts(count, ranks, wire);
      Topology unknown = truth;
      unknown.wire = {};
      const std::vector<int> processors(std::size_t(count), ranks);
      const Topology found = calibrated(unknown, measured(truth).samples, processors);
      EXPECT_NEAR(found.wire.bandwidth / wire.bandwidth, 1, 0.05) << bits;
      EXPECT_NEAR(found.wire.latency / wire.latency, 1, 0.1) << bits;
      EXPECT_NEAR(found.wire.message / wire.message, 1, 0.2) << bits;
    }
}

// A disturbance of one of few repetitions does not count: neither of the first, whose time is
// unknown before, nor of a later one. (A planner that trusts the first would send fewer bytes over
// a slow wire, and take a part of a burst for the rate.)
TEST(WireProbes, AWireThatIsDisturbedKeepsItsRate) {
  for (const auto& [count, ranks] : {std::pair(2, 1), {4, 2}})
    for (const double bits : {1e8, 1e9, 1e10})
      for (const std::size_t spoiled : {0, 1, 2}) {
        const Topology truth =
            hosts(count, ranks,
                  {.latency = 40e-6, .bandwidth = bits / 8, .processor = 0.2e-9, .burst = 40e3});
        const auto twice = [&](const Probe& probe, std::size_t n) {
          return probe.kind == Probe::Kind::kBulk && n == spoiled ? 2.0 : 1.0;
        };
        Topology unknown = truth;
        unknown.wire = {};
        const Topology found = calibrated(unknown, measured(truth, twice).samples,
                                          std::vector<int>(std::size_t(count), ranks));
        EXPECT_NEAR(found.wire.bandwidth * 8 / bits, 1, 0.1)
            << count << "x" << ranks << ", " << bits << " bit/s, repetition " << spoiled;
      }
}

// All flows of a host begin together: no rank leaves a round before the round has come to its host.
TEST(WireProbes, ATurnHoldsAllRanksOfAHost) {
  const Topology topology = hosts(4, 3, {.latency = 1e-3});
  const Simulation run =
      simulate(probe_plan({Probe::Kind::kTurn, 1, 1}, topology.host_of_rank()), topology);
  for (std::size_t rank = 0; rank < run.ended.size(); ++rank) {
    const int before = topology.ranks[rank].host == 0 ? 4 : topology.ranks[rank].host;
    EXPECT_GE(run.ended[rank], before * 1e-3) << rank;
  }
}

TEST(WireProbes, RepetitionsOfOneProbeAreOneSample) {
  std::vector<Sample> samples{{{Probe::Kind::kBulk, 32, 1}, {{1}}}};
  add_samples(samples,
              {{{Probe::Kind::kBulk, 32, 2}, {{2}, {3}}}, {{Probe::Kind::kBulk, 64, 1}, {{4}}}});
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].seconds, (std::vector<std::vector<double>>{{1}, {2}, {3}}));
  EXPECT_EQ(samples[0].probe.repetitions, 3);
  EXPECT_EQ(samples[1].probe.size, 64);
}

// A host with long rounds does one round; a host with short rounds does all.
TEST(WireProbes, TheNextTurnIsBegunOnlyIfItEndsInTime) {
  ProbeGroup group;
  EXPECT_TRUE(another_turn(group, 1, 1e6));
  group.seconds = 0.03;
  EXPECT_TRUE(another_turn(group, 1, 0.0149));
  EXPECT_FALSE(another_turn(group, 1, 0.0151));
  EXPECT_FALSE(another_turn(group, 2, 0.0201));
}

}  // namespace wire_probes_test
}  // namespace lockstep::collectives
