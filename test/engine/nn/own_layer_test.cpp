// SPDX-License-Identifier: MIT
// The worked example of engine/README.md: a layer and a loss of one's own, held against differences
// and trained in a graph.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/nn/gradient_check.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {
namespace {

// Multiplies each column by a weight of its own.
class Scale final : public Layer {
 public:
  std::string describe() const override { return "scale"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{"weight", {inputs[0].elements()}, constant(1)}};
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    if (a.y.dtype == DType::kFloat32) return forward_in<float>(context, a);
    forward_in<double>(context, a);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    if (a.y.dtype == DType::kFloat32) return backward_in<float>(context, a);
    backward_in<double>(context, a);
  }

 private:
  template <class T>
  static void forward_in(Context& context, const ForwardArguments& a) {
    const std::size_t columns = a.y.columns();
    const std::size_t count = std::size_t(context.state->examples) * columns;
    for (std::size_t i = 0; i < count; ++i) {
      a.y.as<T>()[i] = a.x[0].as<T>()[i] * a.w[0].as<T>()[i % columns];
    }
  }
  template <class T>
  static void backward_in(Context& context, const BackwardArguments& a) {
    const std::size_t columns = a.y.columns();
    const std::size_t count = std::size_t(context.state->examples) * columns;
    const Tensor dw = a.dw[0], dx = a.dx[0];
    if (dw && !a.accumulate) std::fill_n(dw.as<T>(), columns, T(0));
    for (std::size_t i = 0; i < count; ++i) {
      const T g = a.dy.as<T>()[i];
      if (dw) dw.as<T>()[i % columns] += g * a.x[0].as<T>()[i];
      if (dx) dx.as<T>()[i] = g * a.w[0].as<T>()[i % columns];
    }
  }
};

// The mean over the columns of log(cosh(y - target)): squares near zero, absolute values far away.
class LogCosh final : public Loss {
 public:
  std::string describe() const override { return "log_cosh"; }
  std::size_t target_columns(const Shape& output) const override { return output.elements(); }
  void evaluate(Context& context, Tensor y, Tensor target, Tensor dy, Tensor losses,
                Tensor) const override {
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

TEST(OwnLayer, IsCheckedLikeOneOfOurs) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const Shape& shape : {Shape{5}, Shape{3, 2, 2}, Shape{1}}) {
    const GradientCheck check = check_gradient(*ops, std::make_shared<Scale>(), {shape});
    EXPECT_LT(check.worst, 1e-6) << check.place;
  }
}

TEST(OwnLoss, IsCheckedLikeOneOfOurs) {
  const auto ops = reference_ops(DType::kFloat64);
  const GradientCheck check = check_gradient(*ops, std::make_shared<LogCosh>(), {4});
  EXPECT_LT(check.worst, 1e-6) << check.place;
  const GradientCheck given = check_gradient(
      *ops, std::make_shared<LogCosh>(), {2},
      {.target = [](std::size_t row, std::size_t column) { return float(row) - float(column); }});
  EXPECT_LT(given.worst, 1e-6) << given.place;
}

TEST(OwnLayer, LearnsInAGraphWithOurs) {
  GraphSpec spec("own", {3});
  spec.then("scale", std::make_shared<Scale>());
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

}  // namespace
}  // namespace lockstep::engine
