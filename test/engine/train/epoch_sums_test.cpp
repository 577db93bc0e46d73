// SPDX-License-Identifier: MIT
#include "engine/train/epoch_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::engine {
namespace epoch_sums_test {

StepReport step(double loss, double accuracy, std::size_t examples, double rate) {
  StepReport report;
  report.loss = loss;
  report.accuracy = accuracy;
  report.examples = examples;
  report.examples_per_second = rate;
  return report;
}

// The last batch of an epoch is smaller. The rate is that of the steps that are timed.
TEST(EpochSums, WeightReportsByTheirExamplesAndForgetThem) {
  EpochSums sums;
  sums.add(step(0.75, 0.875, 6, 1), false);
  sums.add(step(0.25, 0.625, 2, 100), true);
  sums.add(step(0.5, 0.5, 4, 50), true);
  const EpochReport report = sums.take(3, true);
  EXPECT_EQ(report.number, 3);
  EXPECT_TRUE(report.resumed);
  EXPECT_EQ(report.examples, 12u);
  EXPECT_DOUBLE_EQ(report.loss, 7.0 / 12);
  EXPECT_DOUBLE_EQ(report.accuracy, 8.5 / 12);
  EXPECT_DOUBLE_EQ(report.examples_per_second, 6 / (2.0 / 100 + 4.0 / 50));
  EXPECT_EQ(sums.take(4, false).examples, 0u);
}

TEST(EpochSums, HaveNoAccuracyIfNoneIsCounted) {
  EpochSums sums;
  sums.add(step(0.5, std::numeric_limits<double>::quiet_NaN(), 4, 10), true);
  const EpochReport report = sums.take(1, false);
  EXPECT_TRUE(std::isnan(report.accuracy));
  EXPECT_EQ(report.loss, 0.5);
}

}  // namespace epoch_sums_test
}  // namespace lockstep::engine
