// SPDX-License-Identifier: MIT
// Tests every backward against finite differences of its forward, on the reference device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/nn/gradient_check.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"

namespace lockstep::engine {
namespace gradient_test {

using testing::HasSubstr;

constexpr double kTolerance = 1e-6;

void expect_right(const LayerPtr& layer, const std::vector<std::vector<Shape>>& cases,
                  const GradientCheckOptions& options = {}) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const std::vector<Shape>& inputs : cases) {
    const GradientCheck check = check_gradient(*ops, layer, inputs, options);
    EXPECT_LT(check.worst, kTolerance)
        << layer->describe() << " of " << to_string(inputs[0]) << ": " << check.place;
    EXPECT_GT(check.checked, 0u) << layer->describe();
    EXPECT_LE(check.kinks * 20, check.checked) << layer->describe();
  }
}

TEST(Gradient, OfDense) {
  expect_right(dense(3), {{{5}}, {{1}}, {{2, 3, 2}}});
  expect_right(dense(1), {{{7}}});
  expect_right(dense(4, {.bias = false}), {{{5}}});
  expect_right(dense(6)->with_relu(), {{{5}}, {{2, 2, 3}}});
  expect_right(dense(6, {.bias = false})->with_relu(), {{{5}}});
}

TEST(Gradient, OfConvolution) {
  expect_right(convolution(3, 3), {{{5, 6, 2}}, {{3, 3, 1}}});
  expect_right(convolution(2, 1), {{{3, 2, 3}}, {{1, 1, 1}}});
  expect_right(convolution(2, 3, {.stride = 2}), {{{6, 7, 2}}});
  expect_right(convolution(2, 3, {.padding = 1}), {{{4, 3, 2}}, {{1, 1, 2}}});
  expect_right(convolution(2, 5, {.stride = 3, .padding = 2}), {{{7, 5, 1}}});
  expect_right(convolution(3, 2, {.bias = false}), {{{4, 4, 2}}});
  expect_right(convolution(3, 3, {.stride = 2, .padding = 1})->with_relu(), {{{5, 5, 2}}});
  expect_right(convolution(3, 3, {.bias = false})->with_relu(), {{{4, 5, 2}}});
}

TEST(Gradient, OfPools) {
  expect_right(max_pool(2), {{{4, 6, 2}}, {{5, 5, 1}}});
  expect_right(max_pool(3, {.stride = 2, .padding = 1}), {{{5, 6, 2}}});
  expect_right(max_pool(3, {.stride = 1}), {{{4, 5, 2}}});
  expect_right(average_pool(2), {{{4, 6, 2}}, {{5, 5, 1}}});
  expect_right(average_pool(3, {.stride = 2, .padding = 1}), {{{5, 6, 2}}});
  expect_right(global_average_pool(), {{{4, 3, 5}}, {{1, 1, 2}}});
}

TEST(Gradient, OfPointwiseLayers) {
  expect_right(relu(), {{{9}}, {{3, 2, 4}}});
  expect_right(tanh(), {{{9}}, {{3, 2, 4}}});
  expect_right(add(), {{{7}, {7}}, {{2, 3, 2}, {2, 3, 2}}});
  expect_right(flatten(), {{{2, 3, 2}}, {{5}}});
}

TEST(Gradient, OfColumnsAndWhatStandsBehindEachOther) {
  expect_right(columns(0, 5), {{{5}}});
  expect_right(columns(2, 3), {{{9}}, {{2, 3, 2}}});
  expect_right(concatenate(), {{{5}}, {{3}, {1}}, {{2, 3, 2}, {4}, {7}}});
}

TEST(Gradient, OfDropoutWithTheMaskOfItsStepAndWithoutAnyInEvaluation) {
  expect_right(dropout(0.4), {{{20}}, {{2, 3, 2}}});
  expect_right(dropout(0), {{{5}}});
  expect_right(dropout(0.4), {{{20}}}, {.training = false});
}

TEST(Gradient, WithAllRowsOneRowAndNoRow) {
  for (const LayerPtr& layer :
       {dense(3), convolution(2, 2), max_pool(2), average_pool(2), tanh()}) {
    expect_right(layer, {{{4, 4, 2}}}, {.rows = 3, .examples = 3});
    expect_right(layer, {{{4, 4, 2}}}, {.rows = 1, .examples = 1});
    // No row is in use: all gradients are zero, and so are the differences.
    expect_right(layer, {{{4, 4, 2}}}, {.rows = 2, .examples = 0});
  }
}

TEST(Gradient, OfLosses) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const auto& loss : {softmax_cross_entropy(), softmax_cross_entropy({.smoothing = 0.1}),
                           softmax_cross_entropy({.smoothing = 0.9}), mean_squared_error()}) {
    for (const Shape& output : {Shape{2}, Shape{10}}) {
      for (std::size_t examples : {std::size_t(0), std::size_t(1), std::size_t(5)}) {
        const GradientCheck check =
            check_gradient(*ops, loss, output, {.rows = 5, .examples = examples});
        EXPECT_LT(check.worst, kTolerance) << loss->describe() << ": " << check.place;
        EXPECT_EQ(check.checked, 5 * output.elements());
      }
    }
  }
  // Without training, labels are not smoothed: this tests the loss and its gradient.
  const GradientCheck plain =
      check_gradient(*ops, softmax_cross_entropy({.smoothing = 0.5}), {10}, {.training = false});
  EXPECT_LT(plain.worst, kTolerance) << plain.place;
  const GradientCheck image = check_gradient(*ops, mean_squared_error(), {2, 3, 2});
  EXPECT_LT(image.worst, kTolerance) << image.place;
}

void expect_right(const GraphSpec& spec) {
  const auto ops = reference_ops(DType::kFloat64);
  const GradientCheck check = check_gradient(*ops, spec);
  EXPECT_LT(check.worst, kTolerance) << spec.name() << ": " << check.place;
  EXPECT_GT(check.checked, 0u);
  EXPECT_LE(check.kinks * 20, check.checked) << spec.name();
}

TEST(Gradient, OfAResidualGraphWhereValuesHaveSeveralReaders) {
  GraphSpec spec("residual", {4, 4, 2});
  const auto stem = spec.then("stem", convolution(3, 3, {.padding = 1}));
  const auto left = spec.add("left", convolution(3, 3, {.padding = 1}), stem);
  const auto active = spec.add("relu", relu(), left);
  const auto right = spec.add("right", convolution(3, 1), stem);
  const auto sum = spec.add("sum", add(), {active, right});
  const auto all = spec.add("all", add(), {sum, stem});
  const auto twice = spec.add("twice", add(), {all, all});
  // A view and its source are both read, so their gradients share memory.
  const auto flat = spec.add("flat", flatten(), twice);
  const auto by_view = spec.add("by_view", dense(5), flat);
  const auto direct = spec.add("direct", dense(5), twice);
  const auto both = spec.add("both", add(), {by_view, direct});
  spec.add("bent", tanh(), both);
  spec.set_loss(softmax_cross_entropy());
  expect_right(spec);
}

TEST(Gradient, OfReluThatCannotBeFused) {
  // Another layer reads the input of the ReLU.
  GraphSpec spec("shared", {6});
  const auto first = spec.then("first", dense(5));
  const auto active = spec.add("relu", relu(), first);
  spec.add("sum", add(), {first, active});
  spec.then("last", dense(3));
  spec.set_loss(mean_squared_error());
  expect_right(spec);
}

TEST(Gradient, OfGraphsWithFrozenParts) {
  for (const char* prefix : {"first", "second.weight", "second.bias", "second", "third"}) {
    GraphSpec spec(std::string("frozen ") + prefix, {5, 5, 1});
    spec.then("first", convolution(3, 2));
    spec.then("relu", relu());
    spec.then("second", convolution(2, 2));
    spec.then("pool", max_pool(2, {.stride = 1}));
    spec.then("third", dense(4));
    spec.freeze(prefix);
    spec.set_loss(softmax_cross_entropy());
    expect_right(spec);
  }
}

// Computes a bias whose gradient can be wrong, to test the checker. The faults are a wrong sign, no
// accumulation, no write, one row too many, and no gradient of the input.
enum class Fault { kNone, kSign, kNotAdded, kNotWritten, kAllRows, kInput };
class BiasOnly final : public Layer {
 public:
  explicit BiasOnly(Fault fault) : fault_(fault) {}
  std::string describe() const override { return "bias only"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{"bias", {inputs[0].elements()}, constant(0), Group::kBias}};
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    const std::size_t columns = a.y.columns();
    for (std::size_t i = 0; i < std::size_t(context.state->examples) * columns; ++i) {
      a.y.as<double>()[i] = a.x[0].as<double>()[i] + a.w[0].as<double>()[i % columns];
    }
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    const std::size_t columns = a.y.columns();
    const std::size_t rows =
        fault_ == Fault::kAllRows ? a.y.rows() : std::size_t(context.state->examples);
    double* gradient = a.dw[0].as<double>();
    const bool add = (a.accumulate || fault_ == Fault::kNotWritten) && fault_ != Fault::kNotAdded;
    if (!add) std::fill_n(gradient, columns, 0.0);
    for (std::size_t i = 0; i < rows * columns; ++i) {
      gradient[i % columns] += a.dy.as<double>()[i] * (fault_ == Fault::kSign ? -1 : 1);
    }
    if (a.dx[0]) context.ops->copy(context.state, a.dy, a.dx[0]);
    if (a.dx[0] && fault_ == Fault::kInput) a.dx[0].as<double>()[1] = 0;
  }

 private:
  Fault fault_;
};

TEST(CheckGradient, FindsABackwardThatIsWrongAndSaysWhere) {
  const auto ops = reference_ops(DType::kFloat64);
  const auto check = [&](Fault fault) {
    return check_gradient(*ops, std::make_shared<BiasOnly>(fault), {{4}});
  };
  EXPECT_LT(check(Fault::kNone).worst, kTolerance);
  EXPECT_EQ(check(Fault::kNone).checked, 4u + 4 * 4);
  EXPECT_GT(check(Fault::kSign).worst, 0.5);
  EXPECT_THAT(check(Fault::kSign).place, HasSubstr("layer.bias["));
  EXPECT_GT(check(Fault::kNotAdded).worst, 0.5);
  EXPECT_THAT(check(Fault::kNotAdded).place, HasSubstr("(added)"));
  EXPECT_GT(check(Fault::kNotWritten).worst, 0.5);
  EXPECT_GT(check(Fault::kAllRows).worst, 0.5);
  EXPECT_GT(check(Fault::kInput).worst, 0.5);
  EXPECT_THAT(check(Fault::kInput).place, HasSubstr("input0.x[1]"));
}

// Computes y = x + |p| with p at zero.
class Corner final : public Layer {
 public:
  std::string describe() const override { return "corner"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{"p", {inputs[0].elements()}, constant(0), Group::kWeight}};
  }
  void forward(Context&, const ForwardArguments& a) const override {
    for (std::size_t i = 0; i < a.y.elements(); ++i) {
      a.y.as<double>()[i] =
          a.x[0].as<double>()[i] + std::abs(a.w[0].as<double>()[i % a.y.columns()]);
    }
  }
  void backward(Context&, const BackwardArguments& a) const override {
    std::fill_n(a.dw[0].as<double>(), a.dw[0].elements(), 17.0);
  }
};

TEST(CheckGradient, LooksAtSoManySamplesOfEachTensorAndLeavesKinksOut) {
  const auto ops = reference_ops(DType::kFloat64);
  const GradientCheck few = check_gradient(*ops, dense(3), {{5}}, {.samples = 2});
  EXPECT_EQ(few.checked, 3u * 2);
  // All parameters lie on a kink, whatever the gradient says there.
  GraphSpec spec("corners", {4});
  spec.then("corner", std::make_shared<Corner>());
  spec.set_loss(mean_squared_error());
  const GradientCheck none = check_gradient(*ops, spec);
  EXPECT_EQ(none.checked, 0u);
  EXPECT_EQ(none.kinks, 4u);
}

TEST(CheckGradient, RefusesFloat32AndMoreExamplesThanRows) {
  const auto ops = reference_ops(DType::kFloat32);
  EXPECT_THROW(check_gradient(*ops, dense(3), {{5}}), Error);
  const auto right = reference_ops(DType::kFloat64);
  EXPECT_THROW(check_gradient(*right, dense(3), {{5}}, {.rows = 2, .examples = 3}), Error);
}

}  // namespace gradient_test
}  // namespace lockstep::engine
