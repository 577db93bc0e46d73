// SPDX-License-Identifier: MIT
// Tests how hard the generated digits are for a linear classifier. It is slow because it trains
// one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/base/random.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace digits_difficulty_test {

constexpr std::size_t kInputs = 785, kClasses = 10;  // the pixels and a one

struct Rows {
  std::vector<float> inputs;
  std::vector<std::size_t> classes;
  const float* input(std::size_t row) const { return inputs.data() + row * kInputs; }
};

Rows rows_of(const Dataset& set) {
  Rows rows;
  rows.inputs.resize(set.size() * kInputs);
  std::vector<float> target(1);
  for (std::uint64_t i = 0; i < set.size(); ++i) {
    const auto row = std::span(rows.inputs).subspan(i * kInputs, kInputs);
    set.read(i, row.first(kInputs - 1), target);
    for (float& v : row.first(kInputs - 1)) v += 0.8f;  // centers the pixels about their mean
    row.back() = 1;
    rows.classes.push_back(std::size_t(target[0]));
  }
  return rows;
}

using Weights = std::vector<float>;  // kClasses rows of kInputs

std::vector<float> scores(const Weights& weights, const float* input) {
  std::vector<float> result(kClasses);
  for (std::size_t c = 0; c < kClasses; ++c) {
    for (std::size_t j = 0; j < kInputs; ++j) result[c] += weights[c * kInputs + j] * input[j];
  }
  return result;
}

double accuracy(const Weights& weights, const Rows& rows) {
  std::size_t right = 0;
  for (std::size_t i = 0; i < rows.classes.size(); ++i) {
    const std::vector<float> s = scores(weights, rows.input(i));
    right += std::size_t(std::ranges::max_element(s) - s.begin()) == rows.classes[i];
  }
  return double(right) / double(rows.classes.size());
}

// Trains softmax regression by stochastic gradient descent with a decreasing rate. The test
// accuracy must stay below the bound after any epoch and with any weight decay, so the test uses
// the best of all epochs.
TEST(GeneratedDigitsDifficulty, ALinearClassifierLearnsThemButStaysBelow93Percent) {
  const Sets sets = generated_digits();
  const Rows train = rows_of(*sets.train), test = rows_of(*sets.test);
  double best = 0;
  for (const float decay : {0.0f, 0.003f}) {
    Weights weights(kClasses * kInputs);
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
      const float rate = 0.004f / (1 + float(epoch) / 4);
      for (const std::uint64_t i : permutation(train.classes.size(), 1, epoch)) {
        const float* input = train.input(i);
        std::vector<float> s = scores(weights, input);
        const float largest = *std::ranges::max_element(s);
        for (float& v : s) v = std::exp(v - largest);
        const float sum = std::accumulate(s.begin(), s.end(), 0.0f);
        for (std::size_t c = 0; c < kClasses; ++c) {
          const float error = s[c] / sum - (c == train.classes[i] ? 1.0f : 0.0f);
          for (std::size_t j = 0; j < kInputs; ++j) {
            float& weight = weights[c * kInputs + j];
            weight -= rate * (error * input[j] + decay * weight);
          }
        }
      }
      best = std::max(best, accuracy(weights, test));
    }
    EXPECT_GT(accuracy(weights, train), 0.85);  // it learned what a linear classifier can
  }
  RecordProperty("best", std::to_string(best));
  EXPECT_LT(best, 0.93);
  EXPECT_GT(best, 0.5);
}

}  // namespace digits_difficulty_test
}  // namespace lockstep::engine::data
