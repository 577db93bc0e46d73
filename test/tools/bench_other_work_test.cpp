// SPDX-License-Identifier: MIT
// Tests the messages of `lockstep bench` on a machine that is busy with other work. The times are
// invented.
#include "tools/bench/other_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::test {
namespace bench_other_work_test {

using testing::HasSubstr;
using tools::bench::OtherWork;
using tools::bench::worse;

TEST(BenchOtherWork, IsNotSaidOfAnIdleMachine) {
  OtherWork work;
  EXPECT_EQ(work.note(), "");
  for (int size = 0; size < 15; ++size) work.add({0.004 * size, 0.5 * size});
  EXPECT_EQ(work.note(), "");
}

TEST(BenchOtherWork, IsSaidWithTheLinesThatItSpoiled) {
  OtherWork work;
  work.add({0.001, 0.02});
  work.add({0.3, 1.0});
  work.add({0.48, 1.0});
  EXPECT_THAT(work.note(), HasSubstr("busy with other work: in 2 of 3 lines"));
  EXPECT_THAT(work.note(), HasSubstr("up to 48 %"));
}

TEST(BenchOtherWork, OfTwoTimingsTheDisturbedOneCounts) {
  const collectives::ProcessorWait disturbed{0.3, 1.0}, more{0.6, 1.0}, calm{0.01, 1.0};
  const collectives::ProcessorWait brief{0.01, 0.02};  // a larger share of a negligible time
  for (const auto& other : {calm, brief}) {
    EXPECT_EQ(worse(disturbed, other).waited, 0.3);
    EXPECT_EQ(worse(other, disturbed).waited, 0.3);
  }
  EXPECT_EQ(worse(disturbed, more).waited, 0.6);
  EXPECT_EQ(worse(more, disturbed).waited, 0.6);
  EXPECT_FALSE(worse(calm, brief).disturbed());
}

}  // namespace bench_other_work_test
}  // namespace lockstep::test
