// SPDX-License-Identifier: MIT
// Sums of synchronous steps over workers count each share once, in the step to which it belongs.
#include "strategies/parameter_server/worker/step_totals.h"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace step_totals_test {

using strategies::StepTotals;

engine::Totals share(double loss, double examples) {
  return {.loss = loss, .correct = 1, .examples = examples};
}

TEST(StepTotals, AreOfAllWorkersThatReported) {
  StepTotals totals(3);
  totals.begin(10, 20);
  totals.add(2, 10, share(4, 3));
  totals.add(0, 10, share(1, 4));
  EXPECT_EQ(totals.reported(10), 2);
  totals.add(1, 10, share(2, 4));
  totals.add(1, 11, share(50, 4));  // ahead of the others
  EXPECT_EQ(totals.reported(10), 3);
  EXPECT_EQ(totals.reported(11), 1);
  const engine::Totals whole = totals.take(10);
  EXPECT_EQ(whole.loss, 7);
  EXPECT_EQ(whole.correct, 3);
  EXPECT_EQ(whole.examples, 11);
  EXPECT_EQ(totals.take(11).loss, 50);
}

TEST(StepTotals, CountARepeatedALateAndAStrangeReportNotAtAll) {
  StepTotals totals(2);
  totals.begin(0, 5);
  totals.add(0, 1, share(1, 1));
  totals.add(0, 1, share(8, 1));
  totals.add(0, 5, share(8, 1));
  EXPECT_EQ(totals.take(1).loss, 1);
  totals.add(1, 0, share(8, 1));
  totals.add(1, 3, share(2, 1));
  EXPECT_EQ(totals.take(3).loss, 2);
  totals.add(1, 4, share(8, 1));
  totals.begin(5, 7);
  EXPECT_EQ(totals.reported(4), 2);
  EXPECT_EQ(totals.reported(5), 0);
  EXPECT_EQ(totals.take(6).examples, 0);
}

}  // namespace step_totals_test
}  // namespace lockstep::test
