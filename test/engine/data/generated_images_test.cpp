// SPDX-License-Identifier: MIT
// Tests generated color images: they are a function of (seed, example), have any size, and are
// learnable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace generated_images_test {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Example {
  std::vector<float> input;
  float label = 0;
  bool operator==(const Example&) const = default;
};

Example read(const Dataset& set, std::uint64_t index) {
  Example example{std::vector<float>(set.input_shape().elements())};
  set.read(index, example.input, std::span(&example.label, 1));
  return example;
}

TEST(GeneratedImages, AreOfTheSizeAndClassesThatWereAskedFor) {
  const Sets small = generated_images();
  EXPECT_EQ(small.train->input_shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(small.train->classes(), 10u);
  EXPECT_EQ(small.train->size(), 8000u);
  EXPECT_EQ(small.test->size(), 2000u);
  const Sets large = generated_images(
      {.height = 224, .width = 200, .classes = 1000, .train = 1'000'000'000'000, .test = 0});
  EXPECT_EQ(large.test, nullptr);
  EXPECT_EQ(large.train->describe(),
            "generated images/train: 1000000000000 of 224x200x3, 1000 classes");
  std::set<float> labels;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Example example = read(*large.train, 999'999'999'999 - i);
    EXPECT_LT(example.label, 1000);
    labels.insert(example.label);
    const auto [least, most] = std::ranges::minmax(example.input);
    EXPECT_GE(least, -1);
    EXPECT_LE(most, 1);
    EXPECT_GT(most - least, 0.5f);
  }
  EXPECT_GT(labels.size(), 15u);
}

TEST(GeneratedImages, ExamplesDependOnSeedAndIndexAndNotOnHowManyThereAre) {
  const Sets many = generated_images({.train = 40, .test = 10, .seed = 3}),
             few = generated_images({.train = 25, .test = 25, .seed = 3}),
             other = generated_images({.train = 40, .test = 10, .seed = 4});
  for (std::uint64_t i = 10; i-- > 0;) {
    EXPECT_EQ(read(*many.train, i), read(*few.train, i));
    EXPECT_EQ(read(*many.test, i), read(*few.test, i));
    EXPECT_NE(read(*many.train, i), read(*many.test, i));
    EXPECT_NE(read(*many.train, i), read(*many.train, i + 1));
    EXPECT_NE(read(*many.train, i), read(*other.train, i));
  }
  EXPECT_EQ(many.train->fingerprint(),
            generated_images({.train = 40, .test = 1, .seed = 3}).train->fingerprint());
  EXPECT_NE(many.train->fingerprint(), few.train->fingerprint());
  EXPECT_NE(many.train->fingerprint(), other.train->fingerprint());
  EXPECT_NE(many.train->fingerprint(), many.test->fingerprint());
}

// The nearest class mean of the training set predicts most test images, so the data are learnable.
// It does not predict all, so a network can do better.
TEST(GeneratedImages, TheNearestMeanOfATrainingClassIsMostlyRight) {
  const Sets sets = generated_images({.train = 600, .test = 300});
  const std::size_t elements = sets.train->input_shape().elements();
  std::vector<std::vector<double>> means(10, std::vector<double>(elements));
  std::vector<int> counts(10);
  for (std::uint64_t i = 0; i < 600; ++i) {
    const Example example = read(*sets.train, i);
    const std::size_t label = std::size_t(example.label);
    ++counts[label];
    for (std::size_t j = 0; j < elements; ++j) means[label][j] += double(example.input[j]);
  }
  int right = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Example example = read(*sets.test, i);
    double least = std::numeric_limits<double>::max();
    std::size_t nearest = 0;
    for (std::size_t label = 0; label < 10; ++label) {
      ASSERT_GT(counts[label], 30);
      double distance = 0;
      for (std::size_t j = 0; j < elements; ++j) {
        const double d = double(example.input[j]) - means[label][j] / counts[label];
        distance += d * d;
      }
      if (distance < least) least = distance, nearest = label;
    }
    right += nearest == std::size_t(example.label);
  }
  EXPECT_GT(right, 200);
}

TEST(GeneratedImages, WhatCannotBeIsRefused) {
  EXPECT_THAT([] { generated_images({.train = 0}); }, ThrowsMessage<Error>(HasSubstr("0 gener")));
  EXPECT_THAT([] { generated_images({.height = 0}); }, ThrowsMessage<Error>(HasSubstr("0x32")));
  EXPECT_THAT([] { generated_images({.classes = 0}); },
              ThrowsMessage<Error>(HasSubstr("0 classes")));
}

}  // namespace generated_images_test
}  // namespace lockstep::engine::data
