// SPDX-License-Identifier: MIT
#include "engine/train/area_under_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::engine {
namespace area_under_curve_test {

using Scores = std::vector<ScoredExample>;

TEST(AreaUnderCurve, CountsPairsInTheRightOrder) {
  EXPECT_EQ(area_under_curve({{0.1f, false}, {0.9f, true}}), 1);
  EXPECT_EQ(area_under_curve({{0.9f, false}, {0.1f, true}}), 0);
  EXPECT_EQ(area_under_curve({{0.5f, false}, {0.5f, true}}), 0.5);
  EXPECT_EQ(area_under_curve({{0.1f, false}, {0.4f, false}, {0.35f, true}, {0.8f, true}}), 0.75);
}

TEST(AreaUnderCurve, IsThatOfAllPairs) {
  Scores scores;
  for (int i = 0; i < 300; ++i) scores.push_back({float(i * 37 % 101), i * 53 % 7 < 2});
  double right = 0, pairs = 0;
  for (const auto& positive : scores)
    for (const auto& negative : scores) {
      if (!positive.positive || negative.positive) continue;
      ++pairs;
      right += positive.score > negative.score ? 1 : positive.score == negative.score ? 0.5 : 0;
    }
  EXPECT_NEAR(area_under_curve(scores), right / pairs, 1e-12);
}

TEST(AreaUnderCurve, NeedsBothClassesAndNumbers) {
  EXPECT_TRUE(std::isnan(area_under_curve({})));
  EXPECT_TRUE(std::isnan(area_under_curve({{1, true}, {2, true}})));
  const float none = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(area_under_curve({{none, true}, {2, false}})));
}

TEST(AreaUnderCurve, ScoresTravelAsBytes) {
  const Scores scores = {{-1.5f, true}, {3e-9f, false}};
  Scores back;
  append_scores(score_bytes(scores), back);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].score, -1.5f);
  EXPECT_TRUE(back[0].positive);
  EXPECT_EQ(back[1].score, 3e-9f);
  EXPECT_FALSE(back[1].positive);
}

}  // namespace area_under_curve_test
}  // namespace lockstep::engine
