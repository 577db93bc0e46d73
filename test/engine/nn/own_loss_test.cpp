// SPDX-License-Identifier: MIT
// Tests a user-defined loss whose target has as many columns as the output, against finite
// differences and in training. Complete programs with user-defined parts: test/face/own_*.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/nn/gradient_check.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {
namespace own_loss_test {

// Computes the mean over the columns of log(cosh(y - target)), which is quadratic near zero and
// linear far away.
class LogCosh final : public Loss {
 public:
  std::string describe() const override { return "log_cosh"; }
  std::size_t target_columns(const Shape& output) const override { return output.elements(); }
  void evaluate(Context& context, Tensor y, Tensor target, Tensor dy, Tensor losses,
                Tensor) const override {
    require(y.dtype == DType::kFloat64, "log_cosh computes in float64, not in {}", name(y.dtype));
    const StepState& state = *context.state;
    const std::size_t columns = y.columns();
    const double weight = state.inverse_examples * state.loss_scale / double(columns);
    for (std::size_t row = 0; row < std::size_t(state.examples); ++row) {
      double sum = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
        const double difference = y.as<double>()[i] - double(target.as<float>()[i]);
        sum += std::log(std::cosh(difference));
        if (dy) dy.as<double>()[i] = std::tanh(difference) * weight;
      }
      losses.as<double>()[row] = sum / double(columns);
    }
  }
};

TEST(OwnLoss, IsCheckedLikeOneOfOurs) {
  const auto ops = reference_ops(DType::kFloat64);
  const GradientCheck check = check_gradient(*ops, std::make_shared<LogCosh>(), {4});
  EXPECT_LT(check.worst, 1e-6) << check.place;
  const GradientCheck given = check_gradient(
      *ops, std::make_shared<LogCosh>(), {2},
      {.target = [](std::size_t row, std::size_t column) { return float(row) - float(column); }});
  EXPECT_LT(given.worst, 1e-6) << given.place;
}

// Without the refusal, a loop over float64 would read two 16-bit numbers as one.
TEST(OwnLoss, ItsRefusalOfATypeReachesTheCaller) {
  GraphSpec spec("own", {3});
  spec.then("dense", dense(2));
  spec.set_loss(std::make_shared<LogCosh>());
  const auto ops = reference_ops(DType::kBFloat16);
  try {
    Solo(spec, *ops, 4).step();
    FAIL() << "16 bits were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_STREQ(error.what(), "log_cosh computes in float64, not in bfloat16");
  }
}

TEST(OwnLoss, LearnsInAGraphWithOurs) {
  GraphSpec spec("own", {3});
  spec.then("dense", dense(2));
  spec.set_loss(std::make_shared<LogCosh>());
  const auto ops = reference_ops(DType::kFloat64);
  Solo solo(spec, *ops, 4);
  solo.step();
  const double first = solo.loss();
  for (int step = 0; step < 200; ++step) {
    solo.step();
    for (std::size_t i = 0; i < solo.graph.trainable(); ++i) {
      reinterpret_cast<double*>(solo.weights.data())[i] -= 0.3 * solo.gradient()[i];
    }
  }
  EXPECT_LT(solo.loss(), first / 2);
}

}  // namespace own_loss_test
}  // namespace lockstep::engine
