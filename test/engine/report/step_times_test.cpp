// SPDX-License-Identifier: MIT
// Tests histograms of times, and what the times of all ranks tell about stragglers and
// communication.
#include "engine/report/step_times.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::engine {
namespace step_times_test {

TEST(HistogramTest, ReadsOutWhatWasPutInWithinSixTenthsOfAPercent) {
  for (double seconds = 1.1e-6; seconds < 4000; seconds *= 1.37) {
    Histogram histogram;
    histogram.add(seconds);
    histogram.add(seconds);
    histogram.add(1e5);  // beyond the last bin
    EXPECT_NEAR(histogram.median(), seconds, 0.006 * seconds);
    EXPECT_EQ(histogram.most(), 1e5);
  }
}

TEST(HistogramTest, QuantilesAreOfTheTimesInOrder) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(0.99), 0);
  for (int ms = 100; ms >= 1; --ms) histogram.add(ms * 1e-3);
  EXPECT_EQ(histogram.count(), 100u);
  for (const double part : {0.1, 0.5, 0.9, 0.99})
    EXPECT_NEAR(histogram.quantile(part), part * 0.1, 0.03 * part * 0.1) << part;
  EXPECT_NEAR(histogram.quantile(1), 0.1, 0.0022);
  for (int i = 0; i < 101; ++i) histogram.add(1e-9);
  EXPECT_EQ(histogram.median(), 0);
}

struct Lap {
  double waited = 0, messages = 0;
};

// Returns the times of steps that take equally long on all ranks. `steps`: the waiting times by
// step and rank.
StepTimes times_of_laps(double step, const std::vector<std::vector<Lap>>& steps) {
  std::vector<StepClock> clocks(steps[0].size());
  for (const std::vector<Lap>& ranks : steps) {
    Lap least{step, 0};
    for (const Lap& lap : ranks) {
      least.waited = std::min(least.waited, lap.waited);
      if (lap.messages > 0 && (least.messages == 0 || lap.messages < least.messages))
        least.messages = lap.messages;
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      clocks[rank].add(step, ranks[rank].waited, ranks[rank].messages);
      clocks[rank].add_least(least.waited, least.messages);
    }
  }
  std::vector<double> all;
  for (const StepClock& clock : clocks) {
    const auto numbers = clock.times().numbers();
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return step_times(all);
}

StepTimes times_of(double step, const std::vector<double>& waited, int steps = 20,
                   double messages = 0) {
  std::vector<Lap> ranks;
  for (const double wait : waited) ranks.push_back({wait, messages});
  return times_of_laps(step, std::vector<std::vector<Lap>>(std::size_t(steps), ranks));
}

TEST(StepTimesTest, TheRankThatWaitsLeastIsTheSlowestAndTheOthersWaitForIt) {
  const StepTimes times = times_of(0.062, {0.0515, 0.052, 0.002, 0.0525});
  EXPECT_EQ(times.slowest, 2);
  EXPECT_NEAR(times.waited_for_slowest, 0.05, 0.002);
  EXPECT_NEAR(times.exposed, 0.002, 0.0001);
  EXPECT_NEAR(times.ranks[2].work, 0.06, 0.002);
  EXPECT_NEAR(times.ranks[0].work, 0.0105, 0.0005);
  EXPECT_EQ(times.ranks[1].steps, 20);
  EXPECT_EQ(times.warning(), "");
}

TEST(StepTimesTest, OfTheTimeOfMessagesWhatNobodyWaitsForIsHidden) {
  const StepTimes times = times_of(0.1, {0.022, 0.02}, 20, 0.08);
  ASSERT_TRUE(times.hidden_percent());
  EXPECT_NEAR(*times.hidden_percent(), 75, 2);
  EXPECT_NE(times.describe().find("% of it hidden"), std::string::npos);
  EXPECT_EQ(times_of(0.1, {0.09, 0.09}, 20, 0.08).hidden_percent(), 0.0);  // never negative
  EXPECT_FALSE(times_of(0.1, {0.02, 0.02}).hidden_percent());
}

// Rank 0 waits for messages of the slow rank 1, not for the network.
TEST(StepTimesTest, MessagesOfASlowRankAreNotUnderWayBeforeItSendsThem) {
  const std::vector<Lap> ranks{{0.11, 0.11}, {0.02, 0.02}};
  const StepTimes times = times_of_laps(0.12, std::vector<std::vector<Lap>>(20, ranks));
  EXPECT_NEAR(times.exposed, 0.02, 0.001);
  EXPECT_NEAR(times.messages, 0.02, 0.001);
  EXPECT_EQ(times.hidden_percent(), 0.0);
  // Nothing is known about the messages of ranks without any.
  const std::vector<Lap> one{{0.11, 0.08}, {0.02, 0}};
  EXPECT_NEAR(*times_of_laps(0.12, std::vector<std::vector<Lap>>(20, one)).hidden_percent(), 75, 2);
}

// Each rank is late in every fourth step, and the others wait for it; this is not communication.
TEST(StepTimesTest, RanksThatAreLateInTurnAreNoCommunication) {
  std::vector<std::vector<Lap>> steps;
  for (std::size_t step = 0; step < 20; ++step) {
    steps.emplace_back(4, Lap{0.05, 0.05});
    steps.back()[step % 4] = {1e-6, 1e-6};
  }
  const StepTimes times = times_of_laps(0.06, steps);
  EXPECT_LT(times.exposed, 2e-6);
  EXPECT_LT(times.messages, 2e-6);
  EXPECT_NEAR(times.late_in_turn, 0.05, 0.002);
  EXPECT_NEAR(times.waited_for_slowest, 0, 0.002);
  EXPECT_EQ(times.warning(), "");
  EXPECT_NE(times.describe().find("every rank waits for others that are late in turn"),
            std::string::npos);
}

TEST(StepTimesTest, OneRankWaitsForNobody) {
  const StepTimes times = times_of(0.01, {0});  // reads as the middle of its bin
  EXPECT_EQ(times.slowest, 0);
  EXPECT_EQ(times.waited_for_slowest, 0);
  EXPECT_EQ(times.describe(), "a step takes 10.0 ms (median) and 10.0 ms (99th percentile)");
  EXPECT_EQ(times_of(0.01, {0.009}).warning(), "");
}

StepTimes written(double work, double exposed, double others, double steps) {
  StepTimes times;
  times.ranks.assign(3, {steps, 0.01, 0.012345, 0.013, 0.1234, 0.2, work, others, 0, exposed, 0});
  times.slowest = 1;
  times.waited_for_slowest = others;
  times.exposed = exposed;
  return times;
}

TEST(StepTimesTest, EachPartThatMattersHasALine) {
  EXPECT_EQ(written(0.00987, 0.00045, 1.52, 10).describe(),
            "a step takes 12.3 ms (median) and 123 ms (99th percentile). In the median step:\n"
            "   9.87 ms  rank 1, the slowest, computes\n"
            "   0.45 ms  rank 1 waits for communication that computation does not hide\n"
            "    1.52 s  the other ranks wait for rank 1");
  EXPECT_EQ(written(0.00987, 0.00045, 0.0001, 10).describe().find("the other"), std::string::npos);
  const StepTimes two = times_of(0.01, {0.001, 0.0});
  EXPECT_NE(two.describe().find("rank 1, the slowest, computes"), std::string::npos);
  EXPECT_NE(two.describe().find("ms  the other rank waits for rank 1"), std::string::npos);
}

TEST(StepTimesTest, CommunicationThatTakesLongerThanComputingIsAWarning) {
  EXPECT_EQ(written(0.004, 0.0081, 0, 10).warning(),
            "communication takes longer than computation (8.10 ms instead of 4.00 ms per step): a "
            "larger batch or fewer replicas use the machine better");
  EXPECT_EQ(written(0.004, 0.0081, 0, 9).warning(), "") << "too few steps";
  EXPECT_EQ(written(0.004, 0.004, 0, 10).warning(), "");
}

}  // namespace step_times_test
}  // namespace lockstep::engine
