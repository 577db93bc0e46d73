// SPDX-License-Identifier: MIT
#include "engine/nn/initial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::engine {
namespace initial_test {

std::vector<double> drawn(const Initial& initial, std::size_t count, std::uint64_t seed = 1,
                          std::string_view name = "layer.weight") {
  std::vector<double> values(count, -77);
  initialise(initial, seed, name,
             {reinterpret_cast<std::byte*>(values.data()), {count}, DType::kFloat64});
  return values;
}

// Returns the mean, and the mean of the squares.
std::pair<double, double> moments(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (double value : values) {
    sum += value;
    squares += value * value;
  }
  return {sum / double(values.size()), squares / double(values.size())};
}

TEST(Initial, GlorotIsUniformWithinItsLimit) {
  const std::vector<double> values = drawn(glorot_uniform(30, 20), 100000);
  const double limit = std::sqrt(6.0 / 50);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*low, -limit);
  EXPECT_LE(*high, limit);
  EXPECT_LT(*low, -0.999 * limit);
  EXPECT_GT(*high, 0.999 * limit);
  const auto [mean, squares] = moments(values);
  EXPECT_NEAR(mean, 0, 0.01 * limit);
  EXPECT_NEAR(squares, limit * limit / 3, 0.01 * limit * limit);
}

TEST(Initial, HeIsNormalWithVarianceTwoOverFanIn) {
  const std::vector<double> values = drawn(he_normal(50), 100000);
  const double deviation = std::sqrt(2.0 / 50);
  const auto [mean, squares] = moments(values);
  EXPECT_NEAR(mean, 0, 0.015 * deviation);
  EXPECT_NEAR(squares, deviation * deviation, 0.02 * deviation * deviation);
  // In a normal distribution, 68.3 % lie within one deviation and 95.4 % within two.
  const auto within = [&](double limit) {
    return double(std::count_if(values.begin(), values.end(),
                                [&](double v) { return std::abs(v) < limit * deviation; })) /
           double(values.size());
  };
  EXPECT_NEAR(within(1), 0.6827, 0.006);
  EXPECT_NEAR(within(2), 0.9545, 0.003);
}

TEST(Initial, UniformStaysWithinItsLimit) {
  const std::vector<double> values = drawn(uniform_within(0.05), 100000);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*low, -0.05);
  EXPECT_LE(*high, 0.05);
  EXPECT_NEAR(moments(values).second, 0.05 * 0.05 / 3, 2e-5);
}

TEST(Initial, APartHasTheNumbersThatTheWholeHas) {
  for (const Initial& initial :
       {he_normal(3), glorot_uniform(3, 4), uniform_within(0.5), constant(7)}) {
    const std::vector<double> whole = drawn(initial, 40);
    for (std::size_t first = 0; first < 40; ++first) {
      for (std::size_t count : {0u, 1u, 2u, 3u, 5u, 9u}) {
        if (first + count > 40) continue;
        std::vector<double> part(count);
        initialise(initial, 1, "layer.weight",
                   {reinterpret_cast<std::byte*>(part.data()), {count}, DType::kFloat64}, first);
        EXPECT_EQ(part, std::vector<double>(whole.begin() + long(first),
                                            whole.begin() + long(first + count)))
            << first << "+" << count;
      }
    }
  }
}

TEST(Initial, ConstantFillsEveryElement) {
  EXPECT_EQ(drawn(constant(0.25), 5), std::vector<double>(5, 0.25));
  EXPECT_TRUE(drawn(constant(0.25), 0).empty());
}

TEST(Initial, AnElementDependsOnSeedNameAndIndexOnly) {
  for (const Initial& initial : {he_normal(3), glorot_uniform(3, 4)}) {
    const std::vector<double> values = drawn(initial, 103);
    EXPECT_EQ(values, drawn(initial, 103)) << "every replica draws the same";
    for (std::size_t count : {0u, 1u, 2u, 3u, 4u, 5u, 101u}) {
      const std::vector<double> first(values.begin(), values.begin() + long(count));
      EXPECT_EQ(drawn(initial, count), first);
    }
    EXPECT_NE(values, drawn(initial, 103, 2));
    EXPECT_NE(values, drawn(initial, 103, 1, "layer.bias"));
  }
}

TEST(Initial, Float32IsTheFloat64ValueRounded) {
  const std::vector<double> values = drawn(he_normal(7), 50);
  std::vector<float> small(50);
  initialise(he_normal(7), 1, "layer.weight",
             {reinterpret_cast<std::byte*>(small.data()), {50}, DType::kFloat32});
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(small[i], float(values[i]));
}

}  // namespace initial_test
}  // namespace lockstep::engine
