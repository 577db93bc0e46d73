// SPDX-License-Identifier: MIT
// Costs that are fitted to times. The machines are simulated: the fitted costs must predict their
// times. Stored costs are read as they were written, or refused.
#include "collectives/cost/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <random>

#include "collectives/cost/cost_cache.h"
#include "collectives/cost/planner.h"
#include "collectives/cost/simulator.h"
#include "collectives/topology/example_topologies.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace calibration_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::size_t kKiB = 1024, kMiB = kKiB * kKiB;

std::vector<ProbeGroup> all_probes(const std::vector<int>& host) {
  std::vector<ProbeGroup> groups{signal_probes(host)};
  const auto ranks = std::size_t(std::count(host.begin(), host.end(), host[0]));
  for (const std::size_t bytes : pass_sizes(32 * kMiB, ranks))
    groups.push_back(pass_probe(host, bytes));
  if (ranks == host.size()) return groups;
  std::vector<Probe> wire{{Probe::Kind::kMessages, 1, 3},
                          {Probe::Kind::kMessages, 6, 3},
                          {Probe::Kind::kAtOnce, 8, 3},
                          {Probe::Kind::kAtOnce, 32, 3}};
  for (const std::size_t bytes : {32 * kKiB, 512 * kKiB, 8 * kMiB})
    wire.push_back({Probe::Kind::kBulk, double(bytes), 3});
  groups.push_back(wire_group("wire", host, wire));
  return groups;
}

// Returns the times of all probes on that machine, the same for every repetition.
std::vector<Sample> simulated(const Topology& topology) {
  std::vector<Sample> samples;
  for (const ProbeGroup& group : all_probes(topology.host_of_rank()))
    for (std::size_t i = 0; i < group.probes.size(); ++i) {
      const Simulation run = simulate(group.step[i + 1].plan, topology);
      samples.push_back({group.probes[i], {std::size_t(group.probes[i].repetitions), run.ended}});
    }
  return samples;
}

std::vector<int> processors(const Topology& topology) {
  std::vector<int> cores;
  for (std::size_t host = 0; host < topology.hosts.size(); ++host)
    cores.push_back(topology.cores_of_host(int(host)));
  return cores;
}

// Returns the same ranks with unknown costs.
Topology unknown(Topology topology) {
  for (auto& host : topology.hosts) host.costs = {};
  topology.wire = {};
  topology.costs_are = "assumed";
  return topology;
}

HostCosts machine() {
  HostCosts costs;
  costs.signal = 0.4e-6, costs.step = 0.03e-6, costs.reduction = 0.1e-6, costs.call = 0.7e-6;
  costs.block = 0;
  costs.passes = {{0.1e6, 60e9, 110e9, 20e9}, {1e6, 40e9, 70e9, 10e9}, {60e6, 10e9, 14e9, 4e9}};
  return costs;
}

void expect_near(double a, double b, double part, const std::string& what) {
  EXPECT_NEAR(a / b, 1, part) << what << ": " << a << " and " << b;
}

TEST(Calibration, FindsTheCostsOfASimulatedMachine) {
  const WireCosts wire{.latency = 30e-6,
                       .bandwidth = 1e9,
                       .processor = 0.3e-9,
                       .message = 2e-6,
                       .burst = 40e3,
                       .call = 7e-6};
  for (const auto& [hosts, ranks, cores] :
       {std::tuple(1, 2, 2), {1, 4, 4}, {1, 4, 2}, {2, 1, 1}, {2, 2, 2}, {3, 1, 2}}) {
    const Topology truth = equal_hosts(hosts, ranks, machine(), wire, cores);
    const std::string what = fmt::format("{} x {} ranks, {} cores: ", hosts, ranks, cores);
    const Topology found = calibrated(unknown(truth), simulated(truth), processors(truth));
    EXPECT_EQ(found.costs_are, "measured");
    const HostCosts& costs = found.hosts[0].costs;
    EXPECT_EQ(costs.cores, cores);
    expect_near(costs.step, machine().step, 0.01, what + "step");
    expect_near(costs.reduction, machine().reduction, 0.05, what + "reduction");
    if (ranks > 1) expect_near(costs.signal, machine().signal, 0.01, what + "signal");
    if (hosts > 1) {
      expect_near(found.wire.bandwidth, wire.bandwidth, 0.02, what + "bandwidth");
      expect_near(found.wire.latency, wire.latency, 0.05, what + "latency");
      expect_near(found.wire.message, wire.message, 0.1, what + "message");
      expect_near(found.wire.call, wire.call, 0.1, what + "call");
      expect_near(found.wire.burst, wire.burst, 0.1, what + "burst");
    }
    // The fit must also predict the times of all algorithms. Where it does not, the algorithm has
    // costs that no probe measures, such as a chain of ranks that wait for each other.
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = 256; bytes <= 64 * kMiB; bytes *= 8) sizes.push_back(bytes);
    const auto plan = [&](const Topology& topology) {
      return plan_all_reduce(topology, all_reduce_algorithms(), {}, sizes);
    };
    const Choices right = plan(truth), predicted = plan(found);
    for (std::size_t size = 0; size < sizes.size(); ++size)
      for (std::size_t a = 0; a < right.algorithms().size(); ++a)
        expect_near(predicted.price(size, a).seconds, right.price(size, a).seconds, 0.1,
                    fmt::format("{}{} of {} bytes", what, right.algorithms()[a], sizes[size]));
  }
}

TEST(Calibration, EachHostHasItsOwnCosts) {
  Topology truth = equal_hosts(2, 2, machine(), {}, 2);
  truth.hosts[1].costs.signal *= 3;
  for (MemoryPass& pass : truth.hosts[1].costs.passes) pass.core /= 2, pass.host /= 2;
  const Topology found = calibrated(unknown(truth), simulated(truth), processors(truth));
  for (const std::size_t host : {0, 1}) {
    const HostCosts &is = found.hosts[host].costs, &was = truth.hosts[host].costs;
    expect_near(is.signal, was.signal, 0.01, "signal");
    for (const double bytes : {1e5, 1e6, 3e7}) {
      expect_near(is.pass(bytes).core, was.pass(bytes).core, 0.1, "core");
      expect_near(is.pass(bytes).host, was.pass(bytes).host, 0.1, "host");
    }
  }
}

// The slowest rank counts. A burst that disturbs a third of the repetitions changes nothing.
TEST(Calibration, BurstsOfOtherWorkAreLeftOut) {
  Sample sample{{Probe::Kind::kRounds, 1, 12}, {}};
  for (int i = 0; i < 12; ++i) sample.seconds.push_back({1e-6, 2e-6, 9e-6});
  EXPECT_EQ(usual_seconds(sample, {0, 1}), 2e-6);
  EXPECT_EQ(usual_seconds(sample, {0, 1, 2}), 9e-6);
  for (int burst = 0; burst < 12; burst += 4) {
    Sample spoiled = sample;
    for (int i = burst; i < burst + 4; ++i) spoiled.seconds[std::size_t(i)][0] = 1e-3;
    EXPECT_EQ(usual_seconds(spoiled, {0, 1}), 2e-6) << burst;
  }
  sample.seconds.resize(1);
  EXPECT_EQ(usual_seconds(sample, {0}), 1e-6);
}

// A limited link passes some bytes at once after a pause. If larger messages were spared but the
// smallest were not, the wire's rate is not that after a pause.
TEST(Calibration, WhatOnlySomeBytesWereSparedIsNoBurst) {
  const Topology truth = equal_hosts(2, 2, machine(), {.bandwidth = 12e6, .processor = 0.3e-9}, 2);
  std::vector<Sample> samples = simulated(truth);
  for (Sample& sample : samples)
    if (sample.probe.kind == Probe::Kind::kBulk && sample.probe.size == 512 * kKiB)
      for (auto& of_ranks : sample.seconds)
        for (double& seconds : of_ranks) seconds /= 10;
  const WireCosts wire = calibrated(unknown(truth), samples, processors(truth)).wire;
  expect_near(wire.bandwidth, 12e6, 0.02, "bandwidth");
  EXPECT_EQ(wire.burst, 0);
}

// Whatever was measured, the costs are numbers that one can plan with and write.
TEST(Calibration, WhateverTheTimesCostsArePlausible) {
  std::mt19937_64 random(7);
  for (const auto& [hosts, ranks] : {std::pair(1, 1), {1, 3}, {2, 1}, {3, 2}}) {
    const Topology topology = unknown(equal_hosts(hosts, ranks, {}, {}, 1));
    for (int attempt = 0; attempt < 4; ++attempt) {
      std::vector<Sample> samples = simulated(topology);
      std::uniform_real_distribution<double> power(-12, 0);
      for (Sample& sample : samples)
        for (auto& of_ranks : sample.seconds)
          for (double& seconds : of_ranks)
            seconds = attempt == 0 ? 0 : attempt == 1 ? 0.5 : std::pow(10, power(random));
      const auto passes = std::count_if(samples.begin(), samples.end(), [](const Sample& sample) {
        return sample.probe.kind == Probe::Kind::kTogether;
      });
      const Topology found = calibrated(topology, samples, processors(topology));
      for (const auto& host : found.hosts) {
        for (const double cost : {host.costs.signal, host.costs.step, host.costs.block,
                                  host.costs.reduction, host.costs.call}) {
          EXPECT_TRUE(std::isfinite(cost));
          EXPECT_GE(cost, 0);
        }
        // Noise hides costs, but does not make them zero.
        if (attempt > 0) {
          EXPECT_GT(host.costs.step, 0);
        }
        EXPECT_EQ(std::ptrdiff_t(host.costs.passes.size()), passes);
        for (const MemoryPass& pass : host.costs.passes) {
          EXPECT_TRUE(std::isfinite(pass.core) && std::isfinite(pass.host));
          EXPECT_GT(pass.core, 0);
          EXPECT_GT(pass.host, 0);
          EXPECT_LE(pass.host, pass.core * ranks * (1 + 1e-9));
        }
      }
      EXPECT_GT(found.wire.bandwidth, 0);
      EXPECT_EQ(topology_from_json(to_json(found)), found);
      if (ranks * hosts > 1) {
        EXPECT_GE(plan_all_reduce(found, all_reduce_algorithms(), {}, {kMiB}).choose(kMiB).seconds,
                  0);
      }
    }
  }
}

TEST(Calibration, WhatWasNotMeasuredStays) {
  const Topology topology = equal_hosts(2, 2, machine(), {.latency = 1e-3}, 2);
  const Topology found = calibrated(topology, {}, {2, 2});
  EXPECT_EQ(found.hosts[0].costs.signal, machine().signal);
  EXPECT_EQ(found.hosts[0].costs.passes, machine().passes);
  EXPECT_EQ(found.wire, topology.wire);
}

class Stored : public testing::Test {
 protected:
  Stored() { fs::remove_all(folder_); }
  ~Stored() override { fs::remove_all(folder_); }
  std::string refusal(const std::string& text, const std::string& print) const {
    try {
      costs_from(text, print, unknown(topology_));
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      return error.what();
    }
    return {};
  }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("lockstep-costs-{}", getpid());
  const CostCache cache_{folder_ / "below"};
  const Topology topology_ = equal_hosts(2, 2, machine(), {.latency = 1.0 / 3}, 2);
  const std::string print_ = fingerprint(topology_, "a test");
};

TEST_F(Stored, CostsAreReadBitForBit) {
  EXPECT_FALSE(cache_.read(print_));
  cache_.write(print_, topology_);
  const auto text = cache_.read(print_);
  ASSERT_TRUE(text);
  EXPECT_EQ(costs_from(*text, print_, unknown(topology_)), topology_);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "below"), {}), 1);  // no partial files
}

TEST_F(Stored, DamagedOrForeignCostsAreRefused) {
  cache_.write(print_, topology_);
  const std::string text = *cache_.read(print_);
  EXPECT_EQ(refusal(text, print_), "");
  EXPECT_THAT(refusal(text, print_ + "!"), HasSubstr("on something else"));
  EXPECT_THAT(refusal("", print_), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal(text.substr(0, text.size() / 2), print_), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("{}", print_), HasSubstr("topology"));
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!std::isdigit(static_cast<unsigned char>(text[at]))) continue;
    std::string damaged = text;
    damaged[at] = text[at] == '9' ? '8' : char(text[at] + 1);
    EXPECT_NE(refusal(damaged, print_), "") << "byte " << at;
  }
  EXPECT_NE(fingerprint(topology_, "a test"), fingerprint(topology_, "another"));
  EXPECT_NE(fingerprint(topology_, ""), fingerprint(topology_.first_hosts(1), ""));
}

// A partial file of another process is not touched. Another container with the same home may have a
// process with the same number.
TEST_F(Stored, WhatAnotherIsJustWritingIsNotTouched) {
  const std::string others = fmt::format("{}.{}.partial", cache_.file(print_).string(), getpid());
  fs::create_directories(folder_ / "below");
  std::ofstream(others) << "another's";
  cache_.write(print_, topology_);
  EXPECT_EQ(costs_from(*cache_.read(print_), print_, unknown(topology_)), topology_);
  std::string text;
  std::getline(std::ifstream(others) >> std::ws, text);
  EXPECT_EQ(text, "another's");
}

// For any memory size in pages, pass sizes ascend to all of it. No size occurs twice, and none is
// far from the next.
TEST(Probes, PassSizesAscendToAllThereIs) {
  constexpr std::size_t kPage = 4 * kKiB;
  for (const std::size_t ranks : {1, 2, 3, 8, 64})
    for (std::size_t most = kPage; most <= 128 * kMiB / ranks; most += 7 * kPage) {
      const std::vector<std::size_t> sizes = pass_sizes(most, ranks);
      ASSERT_EQ(sizes.back(), most) << ranks;
      ASSERT_EQ(sizes.front(), std::min(most, ranks * kPage)) << ranks << " ranks of " << most;
      for (std::size_t i = 1; i < sizes.size(); ++i) {
        ASSERT_GT(sizes[i], sizes[i - 1]) << ranks << " ranks of " << most;
        ASSERT_LE(sizes[i], 8 * sizes[i - 1]) << ranks << " ranks of " << most;
      }
    }
}

TEST(Probes, OtherProbesHaveAnotherHash) {
  const std::vector<int> host{0, 0, 1};
  const std::vector<ProbeGroup> groups{signal_probes(host), pass_probe(host, 4096)};
  const auto changed = [&](const std::function<void(std::vector<ProbeGroup>&)>& change) {
    std::vector<ProbeGroup> others = groups;
    change(others);
    return hash(others) != hash(groups);
  };
  EXPECT_FALSE(changed([](auto&) {}));
  EXPECT_TRUE(changed([](auto& g) { g.pop_back(); }));
  EXPECT_TRUE(changed([](auto& g) { g[0].name += "!"; }));
  EXPECT_TRUE(changed([](auto& g) { g[1].elements += 1; }));
  EXPECT_TRUE(changed([](auto& g) { g[1].writes = false; }));
  EXPECT_TRUE(changed([](auto& g) { g[1].probes[0].repetitions += 1; }));
  EXPECT_TRUE(changed([](auto& g) { g[1].probes[1].size *= 2; }));
  EXPECT_TRUE(changed([](auto& g) { g[1].probes[1].kind = Probe::Kind::kFetched; }));
  EXPECT_TRUE(changed([](auto& g) { g[1].step[1].plan.lanes[0][0].pop_back(); }));
}

TEST_F(Stored, APipeInTheirPlaceIsNotWaitedFor) {
  fs::create_directories(folder_ / "below");
  ASSERT_EQ(::mkfifo(cache_.file(print_).c_str(), 0600), 0);
  EXPECT_FALSE(cache_.read(print_));
  cache_.write(print_, topology_);
  EXPECT_TRUE(cache_.read(print_));
}

TEST_F(Stored, AFolderThatCannotBeIsSaid) {
  EXPECT_THROW(CostCache("/proc/none").write(print_, topology_), engine::Error);
  EXPECT_FALSE(CostCache("/proc/none").read(print_));
}

}  // namespace calibration_test
}  // namespace lockstep::collectives
