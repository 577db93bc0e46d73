// SPDX-License-Identifier: MIT
// Tests generated clicks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/clicks.h"

namespace lockstep::engine::data {
namespace clicks_test {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<float> read(const Dataset& set, std::uint64_t index) {
  std::vector<float> input(set.input_shape().elements()), target(set.target_columns());
  set.read(index, input, target);
  input.insert(input.end(), target.begin(), target.end());
  return input;
}

TEST(Clicks, HaveTheFormOfCriteosData) {
  const Sets sets = generated_clicks({.train = 3000, .test = 20, .buckets = 1000});
  EXPECT_EQ(sets.train->size(), 3000u);
  EXPECT_EQ(sets.test->size(), 20u);
  EXPECT_EQ(sets.train->input_shape(), (Shape{39}));
  EXPECT_EQ(sets.train->target_columns(), 1u);
  EXPECT_EQ(sets.train->classes(), 2u);
  EXPECT_EQ(sets.train->describe(),
            "generated clicks/train: 3000 of 13 numbers and 26 ids below 1000");
  std::set<float> ids;
  double clicks = 0, zeros = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::vector<float> example = read(*sets.train, i);
    for (std::size_t c = 0; c < kClickNumbers; ++c) {
      ASSERT_GE(example[c], 0);
      ASSERT_LT(example[c], 30);
    }
    for (std::size_t c = kClickNumbers; c < kClickColumns; ++c) {
      ASSERT_GE(example[c], 0);
      ASSERT_LT(example[c], 1000);
      ASSERT_EQ(example[c], std::floor(example[c]));
      ids.insert(example[c]);
      zeros += example[c] == 0 ? 1 : 0;
    }
    ASSERT_TRUE(example.back() == 0 || example.back() == 1);
    clicks += double(example.back());
  }
  EXPECT_GT(clicks / 3000, 0.2);
  EXPECT_LT(clicks / 3000, 0.6);
  // A tenth of all ids is the most frequent one of a thousand, and nearly all ids occur.
  EXPECT_NEAR(zeros / (3000 * kClickFields), std::log(2) / std::log(1001), 0.01);
  EXPECT_GT(ids.size(), 990u);
}

TEST(Clicks, AreAFunctionOfSeedAndIndex) {
  const Sets a = generated_clicks({.train = 100, .test = 100, .seed = 3});
  const Sets b = generated_clicks({.train = 70, .test = 100, .seed = 3});
  const Sets c = generated_clicks({.train = 100, .test = 100, .seed = 4});
  for (std::uint64_t i : {0, 1, 69}) {
    EXPECT_EQ(read(*a.train, i), read(*a.train, i));
    EXPECT_EQ(read(*a.train, i), read(*b.train, i));
    EXPECT_NE(read(*a.train, i), read(*c.train, i));
    EXPECT_NE(read(*a.train, i), read(*a.test, i));
    EXPECT_NE(read(*a.train, i), read(*a.train, i + 1));
  }
  EXPECT_EQ(a.train->fingerprint(),
            generated_clicks({.train = 100, .seed = 3}).train->fingerprint());
  EXPECT_NE(a.train->fingerprint(), b.train->fingerprint());
  EXPECT_NE(a.train->fingerprint(), c.train->fingerprint());
  EXPECT_NE(a.train->fingerprint(), a.test->fingerprint());
  EXPECT_NE(a.train->fingerprint(),
            generated_clicks({.train = 100, .seed = 3, .buckets = 7}).train->fingerprint());
}

TEST(Clicks, OfManyExamplesAndManyIdsTakeNoMemory) {
  const std::uint64_t most = std::uint64_t(1) << 40;
  const Sets sets = generated_clicks({.train = most, .test = 0, .buckets = kMostBuckets});
  EXPECT_EQ(sets.test, nullptr);
  float largest = 0;
  for (std::uint64_t i = most - 3000; i < most; ++i) {
    const std::vector<float> example = read(*sets.train, i);
    largest = std::max(largest, *std::max_element(example.begin(), example.end()));
  }
  EXPECT_GT(largest, 1.5e7f);
  EXPECT_LT(largest, 0x1p24f);
  EXPECT_EQ(read(*generated_clicks({.train = 1, .test = 0, .buckets = 1}).train, 0)[20], 0);
}

TEST(Clicks, WhatCannotBeIsRefused) {
  EXPECT_THAT([] { generated_clicks({.train = 0}); },
              ThrowsMessage<Error>(HasSubstr("0 generated")));
  EXPECT_THAT([] { generated_clicks({.train = std::uint64_t(1) << 62}); },
              ThrowsMessage<Error>(HasSubstr("too many")));
  EXPECT_THAT([] { generated_clicks({.buckets = 0}); },
              ThrowsMessage<Error>(HasSubstr("clicks of 0 ids a field; 1 to 16777216 can be")));
  EXPECT_THAT([] { generated_clicks({.buckets = kMostBuckets + 1}); },
              ThrowsMessage<Error>(HasSubstr("16777217 ids")));
}

}  // namespace clicks_test
}  // namespace lockstep::engine::data
