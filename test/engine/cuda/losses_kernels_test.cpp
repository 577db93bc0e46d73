// SPDX-License-Identifier: MIT
#include "engine/cuda/kernels/losses.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "test/engine/cuda/kernel_batch.h"

namespace lockstep::engine::cuda {
namespace losses_kernels_test {

template <class T>
class LossesKernels : public testing::Test {};
TYPED_TEST_SUITE(LossesKernels, ElementTypes);

constexpr double kInverse = 1.0 / 48, kScale = 16;

StepState loss_state(const BatchSize& size) {
  StepState state = state_of(size);
  state.inverse_examples = kInverse;
  state.loss_scale = kScale;
  return state;
}

// The sizes include rows wider than a warp; the largest logit occurs several times.
constexpr std::array<BatchSize, 5> kLossSizes{
    {{0, 2, 3}, {3, 5, 2}, {9, 10, 10}, {7, 7, 33}, {5, 6, 100}}};

template <class T>
std::vector<double> powers(const Batch<T>& logits, std::size_t row, std::size_t classes) {
  std::vector<double> result(classes);
  for (std::size_t c = 0; c < classes; ++c) result[c] = std::exp(logits[row * classes + c]);
  return result;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

template <class T>
double tolerance(double wanted) {
  return 2 * half_step<T>() * std::abs(wanted) + 1e-6;
}

TYPED_TEST(LossesKernels, SoftmaxGivesProbabilities) {
  for (const BatchSize& size : kLossSizes) {
    const StepState state = loss_state(size);
    std::optional<Batch<TypeParam>> before;
    for (const LaunchShape& grid : kGrids) {
      Batch<TypeParam> logits(size, 0, numbers(1)), y(size);
      emulate(grid, [&] {
        run<TypeParam>(Softmax{&state, logits.data(), y.data(), size.columns});
      });
      for (std::size_t i = 0; i < y.used(); ++i) {
        const auto all = powers(logits, i / size.columns, size.columns);
        const double wanted = all[i % size.columns] / sum_of(all);
        ASSERT_NEAR(y[i], wanted, tolerance<TypeParam>(wanted));
      }
      EXPECT_TRUE(y.rest_is_untouched() && (!before || y.same_bits(*before)));
      before = y;
      emulate(grid, [&] {
        run<TypeParam>(Softmax{&state, logits.data(), logits.data(), size.columns});
      });
      EXPECT_TRUE(logits.same_bits(y));
    }
  }
}

TYPED_TEST(LossesKernels, SoftmaxOfLargeLogitsDoesNotOverflow) {
  const StepState state = state_of({1, 1, 2});
  TypeParam logits[2] = {TypeParam(30000.0f), TypeParam(30000.0f)}, y[2] = {};
  emulate({1, 1, 32}, [&] { run<TypeParam>(Softmax{&state, logits, y, 2}); });
  EXPECT_EQ(float(y[0]), 0.5f);
}

TYPED_TEST(LossesKernels, CrossEntropyFollowsItsFormula) {
  for (const BatchSize& size : kLossSizes) {
    for (const double smoothing : {0.0, 0.1}) {
      const StepState state = loss_state(size);
      const std::size_t classes = size.columns;
      std::vector<float> target(size.planned, NAN);
      for (std::size_t r = 0; r < size.examples; ++r) target[r] = float(r * 5 % classes);
      std::optional<Batch<TypeParam>> before;
      std::vector<double> losses_before;
      for (const LaunchShape& grid : kGrids) {
        Batch<TypeParam> logits(size, 0, numbers(2)), gradient(size);
        std::vector<double> losses(size.planned, -1), correct(size.planned, -1);
        Problem problem;
        SoftmaxCrossEntropy call{&state,          logits.data(), target.data(),
                                 gradient.data(), losses.data(), correct.data(),
                                 classes,         smoothing,     &problem};
        emulate(grid, [&] { run<TypeParam>(call); });
        EXPECT_EQ(problem.first, Problem::kNone);
        EXPECT_TRUE(gradient.rest_is_untouched());
        for (std::size_t r = 0; r < size.planned; ++r) {
          if (r >= size.examples) {
            EXPECT_EQ(losses[r] + correct[r], -2);
            continue;
          }
          const auto all = powers(logits, r, classes);
          const std::size_t wanted = std::size_t(target[r]);
          double loss = 0;
          for (std::size_t c = 0; c < classes; ++c) {
            const double q = (c == wanted ? 1 - smoothing : 0) + smoothing / double(classes);
            const double probability = all[c] / sum_of(all);
            loss -= q * std::log(probability);
            const double g = (probability - q) * kInverse * kScale;
            ASSERT_NEAR(gradient[r * classes + c], g, tolerance<TypeParam>(g));
          }
          EXPECT_NEAR(losses[r], loss, 1e-6);
          const auto best = std::max_element(all.begin(), all.end()) - all.begin();
          EXPECT_EQ(correct[r], std::size_t(best) == wanted ? 1 : 0);
        }
        EXPECT_TRUE(!before || (gradient.same_bits(*before) && losses == losses_before));
        before = gradient;
        losses_before = losses;
        call.dlogits = logits.data();  // in place, without other results
        call.losses = call.correct = nullptr;
        emulate(grid, [&] { run<TypeParam>(call); });
        EXPECT_TRUE(logits.same_bits(gradient));
      }
    }
  }
}

// Returns the loss of one row, and whether the prediction was correct.
template <class T>
std::pair<double, double> loss_of(std::vector<float> row, float target) {
  const StepState state = loss_state({1, 1, row.size()});
  std::vector<T> logits(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) logits[i] = T(row[i]);
  double loss = -1, correct = -1;
  Problem problem;
  emulate({1, 1, 32}, [&] {
    run<T>(SoftmaxCrossEntropy{&state, logits.data(), &target, nullptr, &loss, &correct, row.size(),
                               0, &problem});
  });
  EXPECT_EQ(problem.first, Problem::kNone);
  return {loss, correct};
}

TYPED_TEST(LossesKernels, TheFirstOfEqualLogitsIsFound) {
  std::vector<float> row(70, -1.0f);
  row[37] = row[38] = row[69] = row[5] = 2;
  EXPECT_EQ(loss_of<TypeParam>(row, 5).second, 1);
  EXPECT_EQ(loss_of<TypeParam>(row, 37).second, 0);
  EXPECT_EQ(loss_of<TypeParam>(row, 38).second, 0);
}

TYPED_TEST(LossesKernels, ALossThatIsNoNumberIsNotCorrect) {
  for (const float bad : {NAN, INFINITY}) {
    const auto [loss, correct] = loss_of<TypeParam>({bad, 1, 2}, 0);
    EXPECT_TRUE(std::isnan(loss));
    EXPECT_EQ(correct, 0);
  }
  EXPECT_EQ(loss_of<TypeParam>({-INFINITY, -INFINITY}, 0).second, 0);
  EXPECT_EQ(loss_of<TypeParam>({1, -INFINITY}, 1).first, INFINITY);
}

TYPED_TEST(LossesKernels, TheFirstRowWithoutAClassIsTold) {
  for (const float bad : {3.0f, -1.0f, 0.5f, 1e30f, NAN}) {
    const BatchSize size{9, 10, 3};
    const StepState state = loss_state(size);
    std::vector<float> target(10, 2.0f);
    target[4] = target[7] = bad;
    target[9] = bad;  // not in use
    for (const LaunchShape& grid : kGrids) {
      Batch<TypeParam> logits(size, 0, numbers(2));
      Problem problem;
      const SoftmaxCrossEntropy call{
          &state, logits.data(), target.data(), nullptr, nullptr, nullptr, 3, 0, &problem};
      emulate(grid, [&] { run<TypeParam>(call); });
      EXPECT_EQ(problem.first, 4u);
    }
  }
}

TYPED_TEST(LossesKernels, SquaredErrorIsTheMeanOverTheColumns) {
  for (const BatchSize& size : kLossSizes) {
    const StepState state = loss_state(size);
    Batch<float> target(size, 0, numbers(5));
    std::optional<Batch<TypeParam>> before;
    for (const LaunchShape& grid : kGrids) {
      Batch<TypeParam> y(size, 0, numbers(4)), dy(size);
      std::vector<double> losses(size.planned, -1);
      SquaredError call{&state, y.data(), target.data(), dy.data(), losses.data(), size.columns};
      emulate(grid, [&] { run<TypeParam>(call); });
      for (std::size_t r = 0; r < size.planned; ++r) {
        double sum = r < size.examples ? 0 : -double(size.columns);
        for (std::size_t c = 0; r < size.examples && c < size.columns; ++c) {
          const std::size_t at = r * size.columns + c;
          const double difference = y[at] - target[at];
          sum += difference * difference;
          const double g = 2 * difference / double(size.columns) * kInverse * kScale;
          ASSERT_NEAR(dy[at], g, tolerance<TypeParam>(g));
        }
        EXPECT_NEAR(losses[r], sum / double(size.columns), 1e-9);
      }
      EXPECT_TRUE(dy.rest_is_untouched() && (!before || dy.same_bits(*before)));
      before = dy;
      call.dy = y.data();  // in place
      call.losses = nullptr;
      emulate(grid, [&] { run<TypeParam>(call); });
      EXPECT_TRUE(y.same_bits(dy));
    }
  }
}

}  // namespace losses_kernels_test
}  // namespace lockstep::engine::cuda
