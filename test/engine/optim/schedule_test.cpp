// SPDX-License-Identifier: MIT
#include "engine/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace lockstep::engine::optim {
namespace schedule_test {

using testing::HasSubstr;

std::string error_of(std::string_view text) {
  try {
    schedule(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "no error";
}

TEST(Schedule, ConstantIsTheRateAtEveryStep) {
  const Schedule constant = schedule("constant");
  for (std::int64_t step : {0, 1, 50, 99, 100, 1000}) EXPECT_EQ(constant.rate(0.3, step, 100), 0.3);
}

TEST(Schedule, CosineBeginsAtTheRateIsHalfWayInTheMiddleAndEndsAtItsLastPart) {
  const Schedule cosine = schedule("cosine:last=0.2");
  EXPECT_DOUBLE_EQ(cosine.rate(0.5, 0, 100), 0.5);
  EXPECT_DOUBLE_EQ(cosine.rate(0.5, 50, 100), 0.5 * 0.6);
  EXPECT_DOUBLE_EQ(cosine.rate(0.5, 100, 100), 0.5 * 0.2);
  EXPECT_DOUBLE_EQ(cosine.rate(0.5, 5000, 100), 0.5 * 0.2);
  EXPECT_GT(schedule("cosine").rate(0.5, 99, 100), 0) << "the last step of a run moves weights";
}

TEST(Schedule, CosineNeverGrowsAfterWarmUpAndWarmUpNeverFalls) {
  for (const char* text : {"cosine", "cosine:warmup=7", "cosine:warmup=30,last=0.5"}) {
    const Schedule s = schedule(text);
    for (std::int64_t step = 1; step < 30; ++step) {
      const double before = s.rate(1, step - 1, 30), now = s.rate(1, step, 30);
      if (step < s.warm_up) {
        EXPECT_GT(now, before) << text << " step " << step;
      } else {
        EXPECT_LE(now, before) << text << " step " << step;
      }
      EXPECT_LE(now, 1);
      EXPECT_GE(now, s.last * (step < s.warm_up ? 0 : 1));
    }
  }
}

TEST(Schedule, WarmUpGrowsByEqualStepsFromItsFirstPartToTheWholeRate) {
  for (const char* text : {"constant:warmup=4", "cosine:warmup=4"}) {
    const Schedule s = schedule(text);
    EXPECT_DOUBLE_EQ(s.rate(2, 0, 100), 0.5) << text;
    EXPECT_DOUBLE_EQ(s.rate(2, 1, 100), 1.0) << text;
    EXPECT_DOUBLE_EQ(s.rate(2, 2, 100), 1.5) << text;
    EXPECT_DOUBLE_EQ(s.rate(2, 3, 100), 2.0) << text;
    EXPECT_DOUBLE_EQ(s.rate(2, 4, 100), 2.0) << text;
  }
}

TEST(Schedule, RunsOfOneStepAndWarmUpLongerThanTheRunHaveRates) {
  EXPECT_EQ(schedule("cosine").rate(0.1, 0, 1), 0.1);
  EXPECT_DOUBLE_EQ(schedule("cosine:warmup=10").rate(0.1, 0, 1), 0.01);
  EXPECT_EQ(schedule("cosine:warmup=10").rate(0.1, 10, 10), 0.1);
}

TEST(Schedule, WhatIsParsedIsDescribed) {
  EXPECT_EQ(schedule("constant").describe(), "constant");
  EXPECT_EQ(schedule("constant:warmup=100").describe(), "constant, 100 steps of warm-up");
  EXPECT_EQ(schedule("cosine").describe(), "cosine to 0");
  EXPECT_EQ(schedule("cosine:warmup=100,last=0.1").describe(),
            "cosine to 0.1, 100 steps of warm-up");
}

TEST(Schedule, TextThatIsNoScheduleGivesAnErrorThatSaysWhatIs) {
  EXPECT_THAT(error_of("linear"), HasSubstr("known: constant, cosine"));
  EXPECT_THAT(error_of(""), HasSubstr("known: constant, cosine"));
  EXPECT_THAT(error_of("cosine:"), HasSubstr("warmup=STEPS and last=PART"));
  EXPECT_THAT(error_of("cosine:warmup"), HasSubstr("is not a number"));
  EXPECT_THAT(error_of("cosine:warmup=12x"), HasSubstr("warmup=12x is not a number"));
  EXPECT_THAT(error_of("cosine:warmup=-1"), HasSubstr("negative"));
  EXPECT_THAT(error_of("cosine:last=1.5"), HasSubstr("0 <= last <= 1"));
  EXPECT_THAT(error_of("cosine:last=nan"), HasSubstr("0 <= last <= 1"));
  EXPECT_THAT(error_of("constant:last=0.5"), HasSubstr("constant has warmup=STEPS"));
}

}  // namespace schedule_test
}  // namespace lockstep::engine::optim
