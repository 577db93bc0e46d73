// SPDX-License-Identifier: MIT
// Trials change prices and choices, and a run selects which trials it makes.
#include "collectives/topology/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "collectives/algorithms/algorithms.h"
#include "collectives/cost/planner.h"
#include "collectives/cost/trial_probes.h"
#include "collectives/topology/example_topologies.h"

namespace lockstep::collectives {
namespace trial_test {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kUs = 1e-6;

TEST(Trial, TheFactorIsWhatWasMeasuredAndFadesBehind) {
  const std::vector<Trial> trials{{"ring", 32768, 200 * kUs, 100 * kUs},
                                  {"ring", 2048, 100 * kUs, 400 * kUs}};
  const auto ring = [&](double bytes) { return trial_factor(trials, "ring", bytes); };
  EXPECT_NEAR(ring(2048), 4, 1e-9);
  EXPECT_NEAR(ring(32768), 0.5, 1e-9);
  EXPECT_NEAR(ring(0), 4, 1e-9);
  EXPECT_NEAR(ring(256), 4, 1e-9);
  EXPECT_NEAR(ring(8192), (4 + 0.5) / 2, 1e-9) << "half of the way, by doublings";
  EXPECT_NEAR(ring(32768 * kFaded / 4), (0.5 + 1) / 2, 1e-9);
  EXPECT_EQ(ring(32768 * kFaded), 1);
  EXPECT_EQ(ring(1e9), 1);
  double before = ring(32768);
  for (double bytes = 32768; bytes <= 2 * 32768 * kFaded; bytes *= 1.3) {
    EXPECT_GE(ring(bytes), before - 1e-12);
    before = ring(bytes);
  }
  EXPECT_EQ(trial_factor({}, "ring", 2048), 1);
}

// Nothing is chosen only because it was not timed.
TEST(Trial, WhatWasTimedIsThePriceAndWhatWasNotHasTheLargestFactor) {
  const std::vector<Trial> trials{{"ring", 2048, 100 * kUs, 800 * kUs},
                                  {"direct", 2048, 300 * kUs, 600 * kUs},
                                  {"direct", 8192, 300 * kUs, 900 * kUs}};
  EXPECT_EQ(trial_factor(trials, "ring", 2048), 8);
  EXPECT_EQ(trial_factor(trials, "direct", 2048), 2);
  EXPECT_EQ(trial_factor(trials, "halving_doubling", 2048), 8);
  for (const char* name : {"ring", "direct", "halving_doubling"})
    EXPECT_EQ(trial_factor(trials, name, 8192), 3) << name;
}

TEST(Trial, OfThoseThatMayBeTheFastestAndInTime) {
  const Topology topology = example_topology("4x4");
  const auto trials = planned_trials(topology, 0.04);
  ASSERT_THAT(trials, testing::Not(IsEmpty()));
  const Choices choices = plan_all_reduce(topology, all_reduce_algorithms());
  for (const double bytes : {1024.0, 4096.0, 16384.0, 65536.0}) {
    const std::string best = choices.choose(std::size_t(bytes)).algorithm;
    EXPECT_TRUE(std::any_of(trials.begin(), trials.end(), [&](const Trial& trial) {
      return trial.algorithm == best && trial.bytes == bytes;
    })) << best;
  }
  std::set<std::pair<std::string, double>> once;
  for (const Trial& trial : trials) {
    EXPECT_TRUE(once.emplace(trial.algorithm, trial.bytes).second);
    EXPECT_GT(trial.simulated, 0);
    EXPECT_EQ(trial.seconds, trial.simulated) << "it changes nothing before it is tried";
  }
  EXPECT_THAT(planned_trials(equal_hosts(1, 1, {}, {}, 1), 0.04), IsEmpty());
  Topology slow = topology;
  slow.wire.latency = 0.1;
  EXPECT_THAT(planned_trials(slow, 0.04), IsEmpty()) << "each takes longer than all may";
}

TEST(Trial, OnOneHostGoesTo4MiBAndBetweenHostsTo64KiBAndWhereToldToLess) {
  const auto largest = [](const Topology& topology, std::size_t most) {
    double bytes = 0;
    for (const Trial& trial : planned_trials(topology, 10, most))
      bytes = std::max(bytes, trial.bytes);
    return std::size_t(bytes);
  };
  const Topology host = equal_hosts(1, 2, {}, {});
  EXPECT_EQ(largest(host, kMostTriedOnHost), std::size_t(4) << 20);
  EXPECT_EQ(largest(host, std::size_t(1) << 20), std::size_t(1) << 20);
  EXPECT_EQ(largest(equal_hosts(2, 2, {}, {}), kMostTriedOnHost), std::size_t(64) << 10);
}

// The test works as a run does: each size has a group, whose times come back.
TEST(Trial, TimesAreOfTheAlgorithmAndTheSize) {
  Topology topology = example_topology("4x4");
  auto& trials = topology.trials = planned_trials(topology, 0.04);
  const auto groups = trial_groups(topology, trials, false, 0.04);
  ASSERT_EQ(groups.size(), 4u);
  const auto largest = largest_trials(topology);
  std::vector<Sample> samples;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    ASSERT_EQ(groups[g].step.size(), groups[g].probes.size() + 1);
    EXPECT_LE(groups[g].elements, largest[g].elements);
    EXPECT_LE(groups[g].scratch, largest[g].scratch);
    for (std::size_t i = 0; i < groups[g].probes.size(); ++i) {
      const Probe& probe = groups[g].probes[i];
      EXPECT_EQ(groups[g].step[i + 1].plan.algorithm, probe.algorithm);
      EXPECT_EQ(probe.repetitions, 2);
      const auto trial = std::find_if(trials.begin(), trials.end(), [&](const Trial& t) {
        return t.algorithm == probe.algorithm && t.bytes == probe.size;
      });
      ASSERT_NE(trial, trials.end());
      // The slowest rank of each repetition counts, and one of the four repetitions does not.
      const double seconds = trial->simulated * double(samples.size() + 2);
      samples.push_back({probe,
                         {{seconds / 2, seconds, seconds / 3},
                          {seconds, seconds / 8, seconds / 9},
                          {seconds / 9, seconds / 9, seconds},
                          {seconds, 7 * seconds, seconds}}});
    }
  }
  EXPECT_EQ(samples.size(), trials.size());
  std::vector<Sample> twice;  // as from two rounds
  add_samples(twice, samples), add_samples(twice, samples);
  EXPECT_EQ(twice.size(), trials.size());
  add_times(trials, twice);
  std::set<double> factors;
  for (const Trial& trial : trials) factors.insert(std::round(trial.seconds / trial.simulated));
  EXPECT_EQ(factors.size(), trials.size());
  EXPECT_EQ(*factors.begin(), 2);
  EXPECT_EQ(*factors.rbegin(), double(trials.size() + 1));
  add_times(trials, {});
  EXPECT_EQ(std::round(trials[0].seconds / trials[0].simulated), 2) << "without samples it stays";
}

// Bursts of other work take some thirds of the time. Undisturbed repetitions count; if there are
// too few, the trial has to run again.
TEST(Trial, WhatOtherWorkDisturbedDoesNotCountOrIsFound) {
  const auto sample = [](const std::string_view name, const std::vector<double>& seconds) {
    Sample made{{.kind = Probe::Kind::kSum, .size = 4096, .algorithm = name}, {}};
    for (const double each : seconds) made.seconds.push_back({each, each / 2});
    return made;
  };
  const auto found = [&](const std::vector<double>& seconds) {
    std::vector<Trial> trials{{"ring", 4096, 1, 1}};
    const std::vector<Sample> samples{sample("direct", {9, 9, 9}), sample("ring", seconds)};
    add_times(trials, samples);
    return std::pair(trials[0].seconds, disturbed(trials, samples).size());
  };
  EXPECT_EQ(found({4, 5, 4, 4, 4, 4, 4, 5, 4}), std::pair(4.0, 0ul));
  EXPECT_EQ(found({4, 5, 4, 90, 80, 70, 4, 4, 4}), std::pair(4.0, 0ul)) << "one third";
  EXPECT_EQ(found({40, 50, 40, 90, 80, 70, 4, 4, 4}).second, 1u) << "two thirds";
  EXPECT_EQ(found({4}).second, 1u) << "nobody knows";
  EXPECT_EQ(found({}).second, 1u);
  EXPECT_EQ(found({40, 50, 40, 90, 80, 70, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}),
            std::pair(4.0, 0ul))
      << "run again";
}

// Disturbed trials are timed again, and then left out. `factor` is the slowdown of a repetition by
// other work.
TEST(Trial, WhatOtherWorkDisturbsIsTimedAgainAndThenLeftOut) {
  using Factor = std::function<double(int round, std::string_view algorithm, int repetition)>;
  int rounds = 0;
  const auto timed = [&](const Factor& factor) {
    Topology topology = equal_hosts(1, 2, {}, {}, 2);
    topology.trials = planned_trials(topology, 10, std::size_t(16) << 10);
    rounds = 0;
    time_trials(topology, 0.04, [&](const std::vector<ProbeGroup>& groups) {
      std::vector<Sample> samples;
      for (const ProbeGroup& group : groups)
        for (const Probe& probe : group.probes) {
          Sample& sample = samples.emplace_back(Sample{probe, {}});
          for (int i = 0; i < probe.repetitions; ++i)
            sample.seconds.push_back({1e-5 * factor(rounds, probe.algorithm, i), 1e-6});
        }
      ++rounds;
      return samples;
    });
    return topology.trials;
  };
  const auto all = timed([](int, auto, int) { return 1.0; });
  EXPECT_EQ(rounds, 2);
  const auto again = timed(
      [](int round, auto name, int i) { return name == "ring" && round < 2 ? 1.0 + i : 1.0; });
  EXPECT_EQ(rounds, 3);
  EXPECT_EQ(again.size(), all.size());
  const auto never =
      timed([](int, auto name, int i) { return name == "ring" ? 1.0 + i * i : 1.0; });
  EXPECT_EQ(rounds, 3);
  EXPECT_LT(never.size(), all.size());
  EXPECT_EQ(std::ranges::count(never, "ring", &Trial::algorithm), 0);
  for (const Trial& trial : never) EXPECT_NEAR(trial.seconds, 1e-5, 1e-12);
}

TEST(Trial, OfMoreBytesTakesNoLessTime) {
  Topology topology = equal_hosts(1, 2, {}, {}, 2);
  topology.trials = planned_trials(topology, 10, std::size_t(64) << 10);
  time_trials(topology, 0.04, [&](const std::vector<ProbeGroup>& groups) {
    std::vector<Sample> samples;
    for (const ProbeGroup& group : groups)
      for (const Probe& probe : group.probes) {
        const double seconds = probe.algorithm == "ring" ? 1e-2 / double(probe.size) : 1e-5;
        const std::vector<double> of_ranks{seconds, 1e-6};
        samples.push_back({probe, std::vector(std::size_t(probe.repetitions), of_ranks)});
      }
    return samples;
  });
  std::map<std::string, std::pair<double, double>> before;  // bytes and seconds by algorithm
  ASSERT_GT(std::ranges::count(topology.trials, "ring", &Trial::algorithm), 1);
  for (const Trial& trial : topology.trials) {
    auto& [bytes, seconds] = before[trial.algorithm];
    EXPECT_GT(trial.bytes, bytes);
    EXPECT_GE(trial.seconds, seconds);
    bytes = trial.bytes, seconds = trial.seconds;
  }
}

// The simplest of equal algorithms is chosen in every run, whatever the last digits of their times
// are.
TEST(Trial, OfEqualsTheSimplestIsChosenEveryTime) {
  std::mt19937 random(7);
  Topology topology = equal_hosts(1, 2, {}, {}, 2);
  const std::vector<std::size_t> sizes{1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20};
  const auto choices_of = [&](double faster) {
    topology.trials = planned_trials(topology, 10);
    for (Trial& trial : topology.trials) {
      trial.seconds = trial.bytes * 1e-9 * std::uniform_real_distribution<>(0.96, 1.04)(random);
      if (trial.algorithm == "ring") trial.seconds *= faster;
    }
    return plan_all_reduce(topology, all_reduce_algorithms(), {}, sizes).table();
  };
  for (int run = 0; run < 20; ++run) {
    for (const Choice& choice : choices_of(1)) {
      EXPECT_EQ(choice.algorithm, "direct") << choice.bytes << " in run " << run;
      EXPECT_THAT(choice.reason, testing::AnyOf(HasSubstr("within 10 %"), HasSubstr("timed")));
    }
    for (const Choice& choice : choices_of(0.7))
      EXPECT_EQ(choice.algorithm, "ring") << choice.bytes << " in run " << run;
  }
}

// The times of the first round determine the repetitions, so that all trials end in time.
TEST(Trial, TheyEndInTime) {
  Topology topology = example_topology("4x4");
  topology.trials = planned_trials(topology, 0.04);
  for (const double slow : {0.5, 1.0, 10.0, 1e6}) {
    double meeting = 1e9, all = 0;
    for (Trial& trial : topology.trials) {
      trial.seconds = slow * trial.simulated;
      meeting = std::min(meeting, trial.seconds);
    }
    int least = 1000, most = 0;
    for (const ProbeGroup& group : trial_groups(topology, topology.trials, true, 0.04))
      for (const Probe& probe : group.probes) {
        least = std::min(least, probe.repetitions), most = std::max(most, probe.repetitions);
        for (const Trial& trial : topology.trials)
          if (trial.algorithm == probe.algorithm && trial.bytes == probe.size)
            all += (meeting + trial.seconds) * probe.repetitions;
      }
    EXPECT_GE(least, 2);
    EXPECT_TRUE(least == 2 || all <= 0.04) << all;
    EXPECT_TRUE(slow < 1000 || most == 2) << most;
    EXPECT_TRUE(slow > 1 || most >= 10) << most;
  }
}

// Prices rise with the bytes, however wrong the price of few bytes was.
TEST(Trial, PricesRise) {
  Topology topology = example_topology("4x4");
  for (const double off : {0.01, 100.0}) {
    topology.trials = planned_trials(topology, 0.04);
    for (Trial& trial : topology.trials) trial.seconds = off * trial.simulated;
    const Choices choices = plan_all_reduce(topology, all_reduce_algorithms());
    for (std::size_t size = 1; size < choices.sizes().size(); ++size)
      for (std::size_t a = 0; a < choices.algorithms().size(); ++a)
        EXPECT_GE(choices.price(size, a).seconds, choices.price(size - 1, a).seconds)
            << off << " " << choices.algorithms()[a] << " " << choices.sizes()[size];
  }
}

// Trials do not apply to what ranks do alone, or to a half of a sum.
TEST(Trial, OtherCollectivesArePricedByCosts) {
  Topology topology = example_topology("4x4");
  topology.trials = planned_trials(topology, 0.04);
  for (Trial& trial : topology.trials) trial.seconds = 10 * trial.simulated;
  const Algorithm other{.name = "ring",
                        .refusal = [](const std::vector<int>&) { return std::string(); },
                        .make = [](const Request& request) { return ring_all_reduce(request); },
                        .scratch = ring_scratch};
  const std::size_t bytes = 4096;
  const auto seconds = [&](const Topology& of) {
    return plan_all_reduce(of, std::span(&other, 1), {}, {bytes}).choose(bytes).seconds;
  };
  EXPECT_EQ(seconds(topology), seconds(example_topology("4x4")));
}

TEST(Trial, TheChoiceGoesByIt) {
  Topology topology = example_topology("4x4");
  const std::size_t bytes = 2048;
  const auto choose = [&] {
    return plan_all_reduce(topology, all_reduce_algorithms(), {}, {bytes, 64 << 20});
  };
  const Choice before = choose().choose(bytes);
  const double a = before.seconds, b = before.runner_up_seconds;
  const double first = 4 * b, second = 2 * b;
  topology.trials = {{before.algorithm, double(bytes), a, first},
                     {before.runner_up, double(bytes), b, second}};
  const Choice after = choose().choose(bytes);
  EXPECT_EQ(after.algorithm, before.runner_up);
  EXPECT_NEAR(after.seconds, second, b * 1e-9);
  EXPECT_NE(after.runner_up, "");
  const Choices untried =
      plan_all_reduce(example_topology("4x4"), all_reduce_algorithms(), {}, {bytes, 64 << 20});
  for (std::size_t i = 0; i < untried.algorithms().size(); ++i)
    EXPECT_EQ(choose().price(1, i).seconds, untried.price(1, i).seconds) << "far from any trial";
  // If only these two compete, the trials are the reason.
  std::vector<Algorithm> two;
  for (const Algorithm& algorithm : all_reduce_algorithms())
    if (algorithm.name == before.algorithm || algorithm.name == before.runner_up)
      two.push_back(algorithm);
  EXPECT_EQ(plan_all_reduce(topology, two, {}, {bytes}).choose(bytes).reason,
            fmt::format("measured on these ranks: {} takes {}, {} {}", before.runner_up,
                        time_text(second), before.algorithm, time_text(first)));
}

}  // namespace trial_test
}  // namespace lockstep::collectives
