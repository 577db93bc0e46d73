// SPDX-License-Identifier: MIT
// Tests the steps of a graph: hooks, accumulation, shares of a batch, and replicas side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "engine/nn/graph.h"
#include "engine/reference/reference_device.h"
#include "test/engine/nn/sample_graphs.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {
namespace graph_step_test {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double* weights(Solo& solo) {
  return reinterpret_cast<double*>(solo.weights.data());
}

TEST(GraphStep, ReadyRangesAscendBeforeRangesDescendAndBothCoverTheArenaExactly) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const GraphSpec& spec : sample_graphs()) {
    Solo solo(spec, *ops, 2);
    std::vector<Range> before, ready;
    solo.step(
        false, [&](Range range) { before.push_back(range); },
        [&](Range range) { ready.push_back(range); });
    std::size_t end = 0;
    for (Range range : ready) {
      EXPECT_EQ(range.begin, end);
      EXPECT_FALSE(range.empty());
      end = range.end;
    }
    EXPECT_EQ(end, solo.graph.trainable());
    std::reverse(before.begin(), before.end());
    EXPECT_EQ(before, ready);
    // Each range covers one layer: no range holds parameters of two.
    for (Range range : ready) {
      std::string layer;
      for (const Parameter& parameter : solo.graph.layout()) {
        if (!range.meets(parameter.range)) continue;
        const std::string name = parameter.name.substr(0, parameter.name.rfind('.'));
        EXPECT_TRUE(layer.empty() || layer == name) << layer << " and " << name;
        EXPECT_TRUE(range.holds(parameter.range));
        layer = name;
      }
    }
  }
}

TEST(GraphStep, WhatIsReadyIsFinalAndItsWeightsAreNotReadAgain) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const GraphSpec& spec : sample_graphs()) {
    Solo calm(spec, *ops, 3), torn(spec, *ops, 3);
    calm.step();
    std::vector<double> seen(torn.graph.trainable(), kNone);
    torn.step(false, {}, [&](Range range) {
      const std::vector<double> now = torn.gradient();
      std::copy(now.begin() + long(range.begin), now.begin() + long(range.end),
                seen.begin() + long(range.begin));
      std::fill(weights(torn) + range.begin, weights(torn) + range.end, kNone);
    });
    EXPECT_EQ(seen, calm.gradient()) << spec.name();
    EXPECT_EQ(torn.gradient(), calm.gradient()) << spec.name();
  }
}

TEST(GraphStep, NoWeightIsReadBeforeItsRangeWasAskedFor) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const GraphSpec& spec : sample_graphs()) {
    Solo calm(spec, *ops, 3), late(spec, *ops, 3);
    calm.step();
    std::fill(weights(late), weights(late) + late.graph.trainable(), kNone);
    late.step(false, [&](Range range) {
      std::copy(weights(calm) + range.begin, weights(calm) + range.end,
                weights(late) + range.begin);
    });
    EXPECT_EQ(late.output(), calm.output()) << spec.name();
    EXPECT_EQ(late.gradient(), calm.gradient()) << spec.name();
  }
}

TEST(GraphStep, AccumulatedGradientsAreAddedAndOthersReplaceWhatWasThere) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const GraphSpec& spec : sample_graphs()) {
    Solo solo(spec, *ops, 3);
    solo.step();
    const std::vector<double> once = solo.gradient();
    solo.step();
    EXPECT_EQ(solo.gradient(), once) << spec.name();
    solo.step(true);
    const std::vector<double> twice = solo.gradient();
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-14);
  }
}

TEST(GraphStep, NoRowsGiveZeroGradientsAndLeaveAccumulatedOnesAlone) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const GraphSpec& spec : sample_graphs()) {
    Solo solo(spec, *ops, 3);
    solo.step();
    const std::vector<double> once = solo.gradient();
    solo.state.examples = 0;
    solo.step(true);
    EXPECT_EQ(solo.gradient(), once) << spec.name();
    solo.step();
    EXPECT_EQ(solo.gradient(), std::vector<double>(once.size(), 0.0)) << spec.name();
  }
}

TEST(GraphStep, GapsBetweenGradientsStayZero) {
  const auto ops = reference_ops(DType::kFloat64);
  Solo solo(residual_graph(), *ops, 3);
  solo.step();
  solo.step(true);
  std::vector<double> gradient = solo.gradient();
  for (const Parameter& parameter : solo.graph.layout()) {
    for (std::size_t i = parameter.range.begin; i < parameter.range.end; ++i) gradient[i] = 0;
  }
  EXPECT_EQ(gradient, std::vector<double>(gradient.size(), 0.0));
}

// The graph contains dropout, whose masks must not depend on the share either.
TEST(GraphStep, GradientsOfSharesAddUpToThoseOfTheWholeBatch) {
  const auto ops = reference_ops(DType::kFloat64);
  for (const GraphSpec& spec : sample_graphs()) {
    const std::size_t classes = spec.output_shape().elements();
    Solo whole(spec, *ops, 7), share(spec, *ops, 4);
    whole.fill(0, 7, 7, classes);
    whole.step();
    double loss = 0;
    bool first = true;
    for (const Range range : {Range{0, 4}, Range{4, 6}, Range{6, 6}, Range{6, 7}}) {
      share.fill(range.begin, range.size(), 7, classes);
      share.step(!first);
      loss += share.loss();
      first = false;
    }
    EXPECT_NEAR(loss, whole.loss(), 1e-14);
    const std::vector<double> expected = whole.gradient(), sums = share.gradient();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(sums[i], expected[i], 1e-14) << spec.name() << " " << i;
    }
  }
}

TEST(GraphStep, EvaluationWorksWithoutBackwardAndLeavesGradientsAlone) {
  const auto ops = reference_ops(DType::kFloat64);
  Solo solo(chain_graph(), *ops, 3);
  solo.step();
  const std::vector<double> output = solo.output(), gradient = solo.gradient();
  const double loss = solo.loss();
  solo.context.training = false;
  for (int i = 0; i < 2; ++i) {
    solo.graph.forward(solo.context, {});
    solo.graph.evaluate_loss(solo.context, false);
    EXPECT_EQ(solo.output(), output);
    EXPECT_EQ(solo.loss(), loss);
  }
  EXPECT_EQ(solo.gradient(), gradient);
  solo.graph.bind(solo.weights.data(), nullptr);
  solo.graph.forward(solo.context, {});
  EXPECT_EQ(solo.output(), output);
  // Dropout has no effect in evaluation, but it has one in training.
  Solo dropped(residual_graph(), *ops, 3);
  dropped.step();
  const double training = dropped.loss();
  dropped.context.training = false;
  dropped.step();
  EXPECT_NE(dropped.loss(), training);
}

TEST(GraphStep, ReplicasRunSideBySideOnTheSameLayers) {
  const GraphSpec spec = residual_graph();
  constexpr std::size_t kReplicas = 4;
  std::vector<std::vector<double>> gradients(kReplicas);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < kReplicas; ++r) {
    threads.emplace_back([&, r] {
      const auto ops = reference_ops(DType::kFloat64);
      Solo solo(spec, *ops, 3);
      for (int step = 0; step < 5; ++step) solo.step();
      gradients[r] = solo.gradient();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& gradient : gradients) EXPECT_EQ(gradient, gradients[0]);
}

// Copies its input, and refuses 16 bits while it runs.
class Copy final : public Layer {
 public:
  std::string describe() const override { return "copy, whole"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  void forward(Context&, const ForwardArguments& a) const override {
    require(a.y.dtype != DType::kBFloat16, "layer {}: computes in float64, not in {}", *a.name,
            name(a.y.dtype));
    std::memcpy(a.y.data, a.x[0].data, a.y.bytes());
  }
  void backward(Context&, const BackwardArguments& a) const override {
    if (a.dx[0]) std::memcpy(a.dx[0].data, a.dy.data, a.dy.bytes());
  }
};

TEST(GraphStep, AnErrorOfALayerReachesTheCallerWithTheLayersName) {
  GraphSpec spec("m", {3});
  spec.then("second", std::make_shared<Copy>());
  spec.set_loss(mean_squared_error());
  const auto right = reference_ops(DType::kFloat64), wrong = reference_ops(DType::kBFloat16);
  Solo(spec, *right, 2).step();
  try {
    Solo(spec, *wrong, 2).step();
    FAIL() << "16 bits were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_STREQ(error.what(), "layer second: computes in float64, not in bfloat16");
  }
}

// Computes y = x - mean of x over the batch of all replicas, with two reductions.
class Centre final : public Layer {
 public:
  std::string describe() const override { return "centre"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<ReductionSpec> reductions(std::span<const Shape> inputs) const override {
    return {{"sum", inputs[0].elements()}, {"gradient", inputs[0].elements()}};
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    run(context, a.point, a.x[0], a.y);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    run(context, a.point + 1, a.dy, a.dx[0]);
  }

 private:
  static void run(Context& context, int point, Tensor from, Tensor to) {
    const std::size_t columns = from.columns();
    const std::size_t count = std::size_t(context.state->examples) * columns;
    double* sums = reinterpret_cast<double*>(context.exchange(point));
    std::fill_n(sums, columns, 0.0);
    for (std::size_t i = 0; i < count; ++i) sums[i % columns] += from.as<double>()[i];
    context.reduce(point);
    for (std::size_t i = 0; i < count; ++i) {
      to.as<double>()[i] =
          from.as<double>()[i] - sums[i % columns] * context.state->inverse_examples;
    }
  }
};

TEST(GraphStep, ReductionsAreNamedByLayerAndNumberedInForwardOrder) {
  GraphSpec spec("m", {4});
  spec.then("first", std::make_shared<Centre>());
  spec.then("dense", dense(3));
  spec.then("second", std::make_shared<Centre>());
  spec.set_loss(mean_squared_error());
  const auto ops = reference_ops(DType::kFloat64);
  Solo solo(spec, *ops, 3);
  const std::vector<ReductionSpec>& all = solo.graph.reductions();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].name, "first.sum");
  EXPECT_EQ(all[1].name, "first.gradient");
  EXPECT_EQ(all[2].name, "second.sum");
  EXPECT_EQ(all[3].count, 3u);
  solo.step();
  const std::vector<double> output = solo.output();
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(output[c] + output[3 + c] + output[6 + c], 0, 1e-14);
  }
}

}  // namespace graph_step_test
}  // namespace lockstep::engine
