// SPDX-License-Identifier: MIT
#include "strategies/synchronous/step_deadline.h"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace step_deadline_test {

using namespace std::chrono_literals;

// Eight steps are too few. With nine, the median counts, so that one long step changes nothing.
TEST(StepDeadlineTest, IsTwentyMedianStepsOnceNineWereReported) {
  strategies::StepDeadline deadline;
  engine::Clock::time_point now{};
  EXPECT_FALSE(deadline.reported(now));
  for (int step = 1; step <= 8; ++step) EXPECT_FALSE(deadline.reported(now += 3s)) << step;
  EXPECT_EQ(deadline.at_least(10s), 10s);
  EXPECT_TRUE(deadline.reported(now += 500s));
  EXPECT_EQ(deadline.at_least(10s), 60s);
  EXPECT_EQ(deadline.at_least(90s), 90s);
  for (int step = 0; step < 9; ++step) deadline.reported(now += 1s);
  EXPECT_EQ(deadline.at_least(10s), 20s) << "earlier steps are forgotten";
}

}  // namespace step_deadline_test
}  // namespace lockstep::test
