// SPDX-License-Identifier: MIT
// Tests the inputs of the scaling table: gradients without a model, and the efficiency.
#include <gtest/gtest.h>

#include <numeric>

#include "tools/bench/gradients.h"
#include "tools/bench/scaled.h"

namespace lockstep::tools::bench {
namespace bench_scaling_test {

std::size_t sum(const std::vector<Gradient>& gradients) {
  return std::accumulate(gradients.begin(), gradients.end(), std::size_t(0),
                         [](std::size_t all, const Gradient& g) { return all + g.elements; });
}

void expect_in_order(const std::vector<Gradient>& gradients) {
  double before = 0;
  for (const Gradient& gradient : gradients) {
    EXPECT_GT(gradient.elements, 0u);
    EXPECT_GE(gradient.ready, before);
    before = gradient.ready;
  }
  EXPECT_EQ(before, 1);
}

TEST(Gradients, OfResnet50AreThoseOfTheModel) {
  const auto gradients = resnet50_gradients();
  EXPECT_EQ(gradients.size(), 161u);
  EXPECT_EQ(sum(gradients), 25'557'032u);
  expect_in_order(gradients);
  // Backward ends at the first layer: bias and weights of the last layer come first.
  EXPECT_EQ(gradients.front().elements, 1000u);
  EXPECT_EQ(gradients[1].elements, 2'048'000u);
  EXPECT_EQ(gradients.back().elements, 7u * 7 * 3 * 64);
  EXPECT_DOUBLE_EQ(gradients.front().ready, 1.0 / 54);
}

TEST(Gradients, OfAnySizeAreEqualParts) {
  for (const std::size_t elements : {1, 63, 64, 65, 1'000'003}) {
    const auto gradients = equal_gradients(elements);
    EXPECT_EQ(gradients.size(), std::min<std::size_t>(elements, 64));
    EXPECT_EQ(sum(gradients), elements);
    expect_in_order(gradients);
  }
}

TEST(Gradients, AreCutToBucketsThatAreReadyWithTheirLastPart) {
  const auto buckets = in_buckets({{10, 0.25}, {5, 0.5}, {9, 1}}, 8);
  ASSERT_EQ(buckets.size(), 3u);
  const std::size_t elements[] = {8, 8, 8};
  const double ready[] = {0.25, 1, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(buckets[i].elements, elements[i]);
    EXPECT_EQ(buckets[i].ready, ready[i]);
  }
  const auto last = in_buckets({{10, 0.25}, {5, 0.5}}, 8);
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[1].elements, 7u);
  EXPECT_EQ(last[1].ready, 0.5);
  EXPECT_EQ(sum(in_buckets(resnet50_gradients(), 1'048'576)), 25'557'032u);
}

TEST(ScalingTable, EfficiencyIsThroughputOverThatOfAsManyAlone) {
  const Scaled alone{1, 0.1, 1280};
  EXPECT_DOUBLE_EQ(alone.efficiency(alone), 1);
  EXPECT_DOUBLE_EQ((Scaled{8, 0.125, 8 * 1024}).efficiency(alone), 0.8);
  EXPECT_EQ(doubled(1), (std::vector<int>{1}));
  EXPECT_EQ(doubled(8), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(doubled(6), (std::vector<int>{1, 2, 4, 6}));
}

}  // namespace bench_scaling_test
}  // namespace lockstep::tools::bench
