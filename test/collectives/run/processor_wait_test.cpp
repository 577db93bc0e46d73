// SPDX-License-Identifier: MIT
// The wait for a processor shows whether a machine is busy with other work. The times are made up.
#include "collectives/run/processor_wait.h"

#include <gtest/gtest.h>

namespace lockstep::collectives {
namespace processor_wait_test {

TEST(ProcessorWait, IsTheSecondNumberInNanoseconds) {
  EXPECT_DOUBLE_EQ(waited_seconds("47802000 1200000 17\n"), 1.2e-3);
  EXPECT_DOUBLE_EQ(waited_seconds("0 0 0"), 0);
  for (const char* text : {"", "-", "47802000", "47802000 12", "1 x 2", "1  2 3"})
    EXPECT_EQ(waited_seconds(text), 0) << text;
}

TEST(ProcessorWait, FarMoreThanUsualIsOtherWork) {
  // Nine tenths are other work: a rank that waits for others yields its processor each time to a
  // program that wants it too. Half is other work beside a nice program.
  EXPECT_TRUE((ProcessorWait{0.27, 0.3}.disturbed()));
  EXPECT_TRUE((ProcessorWait{0.15, 0.3}.disturbed()));
  // A machine may have small tasks all the time.
  EXPECT_FALSE((ProcessorWait{0.05, 0.3}.disturbed()));
  // Other programs may make single calls, during a short or a long measurement.
  EXPECT_FALSE((ProcessorWait{0.004, 0.01}.disturbed()));
  EXPECT_FALSE((ProcessorWait{0.5, 4.0}.disturbed()));
  EXPECT_FALSE((ProcessorWait{0, 0}.disturbed()));
  EXPECT_EQ((ProcessorWait{0, 0}.part()), 0);
}

TEST(ProcessorWait, OfALapIsWhatCameSinceTheLast) {
  double waited = 5;
  ProcessorWaitClock clock([&] { return waited; });
  waited = 7;
  const ProcessorWait first = clock.lap();
  EXPECT_DOUBLE_EQ(first.waited, 2);
  EXPECT_GE(first.seconds, 0);
  EXPECT_LT(first.seconds, 1000);
  EXPECT_DOUBLE_EQ(clock.lap().waited, 0);
  EXPECT_GE(seconds_without_processor(), 0);
}

}  // namespace processor_wait_test
}  // namespace lockstep::collectives
