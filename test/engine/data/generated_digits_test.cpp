// SPDX-License-Identifier: MIT
// Tests generated digits. They are a function of (seed, index), lie in the right place, and vary in
// all ways that a person would expect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/digit_painter.h"
#include "engine/data/digit_strokes.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace generated_digits_test {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Example {
  std::vector<float> input, target;
  bool operator==(const Example&) const = default;
};

Example read(const Dataset& set, std::uint64_t index) {
  Example example{std::vector<float>(set.input_shape().elements()), std::vector<float>(1)};
  set.read(index, example.input, example.target);
  return example;
}

TEST(GeneratedDigits, HaveTheSizesAskedFor) {
  const Sets sets = generated_digits({.train = 30, .test = 20});
  EXPECT_EQ(sets.train->size(), 30u);
  EXPECT_EQ(sets.test->size(), 20u);
  EXPECT_EQ(sets.train->input_shape(), (Shape{28, 28, 1}));
  EXPECT_EQ(sets.train->target_columns(), 1u);
  EXPECT_EQ(sets.train->classes(), 10u);
  EXPECT_EQ(sets.train->describe(), "generated digits/train: 30 of 28x28x1, 10 classes");
  EXPECT_EQ(sets.test->describe(), "generated digits/test: 20 of 28x28x1, 10 classes");
  EXPECT_EQ(generated_digits({.train = 1, .test = 0}).test, nullptr);
  EXPECT_THAT([] { generated_digits({.train = 0}); },
              ThrowsMessage<Error>(HasSubstr("at least 1")));
}

TEST(GeneratedDigits, AreAFunctionOfSeedAndIndex) {
  const Sets many = generated_digits({.train = 40, .test = 10, .seed = 3}),
             few = generated_digits({.train = 25, .test = 25, .seed = 3}),
             other = generated_digits({.train = 40, .test = 10, .seed = 4});
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(read(*many.train, i), read(*few.train, i));
    EXPECT_EQ(read(*many.test, i), read(*few.test, i));
    EXPECT_NE(read(*many.train, i).input, read(*other.train, i).input);
  }
  EXPECT_EQ(read(*many.train, 24), read(*few.train, 24));
  EXPECT_EQ(many.train->fingerprint(),
            generated_digits({.train = 40, .test = 1, .seed = 3}).train->fingerprint());
  EXPECT_NE(many.train->fingerprint(), few.train->fingerprint());
  EXPECT_NE(many.train->fingerprint(), other.train->fingerprint());
}

TEST(GeneratedDigits, NoTwoAreEqualInTrainOrTest) {
  const Sets sets = generated_digits({.train = 500, .test = 500});
  std::set<std::vector<float>> images;
  for (std::uint64_t i = 0; i < 500; ++i) {
    images.insert(read(*sets.train, i).input);
    images.insert(read(*sets.test, i).input);
  }
  EXPECT_EQ(images.size(), 1000u);
  EXPECT_NE(sets.train->fingerprint(), sets.test->fingerprint());
}

// The classes are about equally frequent. Pixels lie from -1 to 1, bright in the middle and dark at
// the border.
TEST(GeneratedDigits, AreBalancedAndLieInTheMiddle) {
  const auto set = generated_digits({.train = 2000, .test = 0}).train;
  std::vector<int> times(10);
  double middle = 0, border = 0, lightest = -1, darkest = 1;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Example example = read(*set, i);
    ++times.at(std::size_t(example.target[0]));
    for (std::size_t y = 0; y < 28; ++y) {
      for (std::size_t x = 0; x < 28; ++x) {
        const double v = double(example.input[y * 28 + x]);
        lightest = std::max(lightest, v);
        darkest = std::min(darkest, v);
        if (x >= 7 && x < 21 && y >= 4 && y < 24) middle += v / (14 * 20) / 2000;
        if (x < 2 || x >= 26 || y < 2 || y >= 26) border += v / (784 - 24 * 24) / 2000;
      }
    }
  }
  for (const int t : times) EXPECT_NEAR(t, 200, 60);
  EXPECT_EQ(lightest, 1);
  EXPECT_EQ(darkest, -1);
  EXPECT_GT(middle, -0.7);
  EXPECT_LT(border, -0.8);
}

TEST(DigitStrokes, CurvesGoThroughTheirPointsAndLinesAreTheirPoints) {
  for (const auto& styles : digit_styles()) {
    ASSERT_FALSE(styles.empty());
    for (const DigitStyle& style : styles) {
      for (const Stroke& stroke : style) {
        std::vector<Point> outline;
        append_outline(stroke, outline);
        auto from = outline.begin();
        for (const Point& point : stroke.points) {
          EXPECT_LE(std::abs(point.x), 1);
          EXPECT_LE(std::abs(point.y), 1);
          from = std::find_if(from, outline.end(), [&](const Point& p) {
            return std::abs(p.x - point.x) + std::abs(p.y - point.y) < 1e-9;
          });
          ASSERT_NE(from, outline.end());
        }
        if (!stroke.smooth) {
          EXPECT_EQ(outline.size(), stroke.points.size());
        }
      }
    }
  }
}

}  // namespace generated_digits_test
}  // namespace lockstep::engine::data
