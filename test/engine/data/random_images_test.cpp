// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace random_images_test {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Example {
  std::vector<float> input, target;
  bool operator==(const Example&) const = default;
};

Example read(const Dataset& set, std::uint64_t index) {
  Example example{std::vector<float>(set.input_shape().elements()),
                  std::vector<float>(set.target_columns())};
  set.read(index, example.input, example.target);
  return example;
}

TEST(RandomImages, AreNumbersAndClassesOfTheSizesAskedFor) {
  const auto set = random_images({5, 3, 2}, 300, 2000, 1).train;
  EXPECT_EQ(set->size(), 2000u);
  EXPECT_EQ(set->input_shape(), (Shape{5, 3, 2}));
  EXPECT_EQ(set->classes(), 300u);
  EXPECT_EQ(set->describe(), "random images: 2000 of 5x3x2, 300 classes");
  double sum = 0, squares = 0, classes = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Example example = read(*set, i);
    for (const float v : example.input) {
      ASSERT_LE(std::abs(v), 1);
      sum += double(v);
      squares += double(v) * double(v);
    }
    ASSERT_GE(example.target[0], 0);
    ASSERT_LT(example.target[0], 300);
    classes += double(example.target[0]);
  }
  EXPECT_NEAR(sum / 60000, 0, 0.02);
  EXPECT_NEAR(squares / 60000, 1.0 / 3, 0.02);
  EXPECT_NEAR(classes / 2000, 149.5, 10);
}

TEST(RandomImages, AreAFunctionOfSeedAndIndex) {
  const auto a = random_images({4}, 10, 100, 1).train, same = random_images({4}, 10, 50, 1).train,
             other = random_images({4}, 10, 100, 2).train;
  EXPECT_EQ(read(*a, 49), read(*same, 49));
  EXPECT_NE(read(*a, 49), read(*other, 49));
  EXPECT_NE(read(*a, 49).input, read(*a, 48).input);
  EXPECT_EQ(a->fingerprint(), random_images({4}, 10, 100, 1).train->fingerprint());
  EXPECT_NE(a->fingerprint(), same->fingerprint());
  EXPECT_NE(a->fingerprint(), other->fingerprint());
}

TEST(RandomImages, WhatCannotBeIsRefused) {
  EXPECT_THAT([] { random_images({4, 0}, 10, 1, 1); }, ThrowsMessage<Error>(HasSubstr("4x0")));
  EXPECT_THAT([] { random_images({4}, 0, 1, 1); }, ThrowsMessage<Error>(HasSubstr("0 classes")));
  EXPECT_THAT([] { random_images({4}, 10, 0, 1); }, ThrowsMessage<Error>(HasSubstr("at least 1")));
  EXPECT_THAT([] { random_images({4}, 10, std::uint64_t(1) << 62, 1); },
              ThrowsMessage<Error>(HasSubstr("too many")));
}

}  // namespace random_images_test
}  // namespace lockstep::engine::data
