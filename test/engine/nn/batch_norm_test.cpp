// SPDX-License-Identifier: MIT
// Batch norm as a layer: its gradients, what is fused into it, its moving averages; and blocks that
// are computed again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "engine/base/error.h"
#include "engine/nn/gradient_check.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {
namespace batch_norm_test {

using testing::HasSubstr;

const auto kOps = reference_ops(DType::kFloat64);

void expect_right(const LayerPtr& layer, const std::vector<Shape>& inputs, bool training = true) {
  ASSERT_NE(layer, nullptr);
  for (std::size_t examples : {4u, 3u}) {
    GradientCheckOptions options;
    options.examples = examples;
    options.training = training;
    const GradientCheck check = check_gradient(*kOps, layer, inputs, options);
    EXPECT_LT(check.worst, 1e-6) << layer->describe() << ", " << check.place;
    EXPECT_GT(check.checked, 2 * check.kinks);
  }
}

TEST(BatchNorm, GradientsAgreeWithDifferences) {
  for (bool training : {true, false}) {
    for (const Shape& shape : {Shape{3, 2, 5}, Shape{7}, Shape{2, 2, 16}}) {
      const LayerPtr plain = batch_norm();
      expect_right(plain, {shape}, training);
      expect_right(plain->with_relu(), {shape}, training);
      expect_right(plain->with_add(), {shape, shape}, training);
      expect_right(plain->with_add()->with_relu(), {shape, shape}, training);
      expect_right(batch_norm({.epsilon = 0.1, .synchronised = true}), {shape}, training);
    }
  }
}

TEST(BatchNorm, GivesEachChannelMeanZeroAndVarianceOne) {
  GraphSpec spec("m", {4, 4, 3});
  spec.then("bn", batch_norm({.epsilon = 1e-12}));
  spec.set_loss(mean_squared_error());
  Solo solo(spec, *kOps, 5);
  solo.step();
  const std::vector<double> y = solo.output();
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = c; i < y.size(); i += 3) sum += y[i], squares += y[i] * y[i];
    EXPECT_NEAR(sum / 80, 0, 1e-12);
    EXPECT_NEAR(squares / 80, 1, 1e-9);
  }
}

// A residual block; `apart` keeps every layer by itself, since dropout of nothing stands between.
GraphSpec residual(bool apart) {
  GraphSpec spec("m", {5, 4, 3});
  const auto between = [&](const std::string& name, GraphSpec::Value value) {
    return apart ? spec.add(name, dropout(0), value) : value;
  };
  const auto stem = spec.then("stem", convolution(4, 3, {.padding = 1}));
  const auto main = spec.add("conv", convolution(4, 3, {.padding = 1, .bias = false}), stem);
  const auto bn = between("a", spec.add("bn", batch_norm(), main));
  const auto short_conv = spec.add("short", convolution(4, 1, {.bias = false}), stem);
  const auto short_bn = between("b", spec.add("short_bn", batch_norm(), short_conv));
  const auto sum = between("c", spec.add("add", add(), {bn, short_bn}));
  spec.add("relu", relu(), sum);
  spec.then("dense", dense(3));
  spec.set_loss(softmax_cross_entropy());
  return spec;
}

TEST(BatchNorm, TakesInTheSumAndTheReluBehindIt) {
  Solo fused(residual(false), *kOps, 4), apart(residual(true), *kOps, 4);
  Watcher watcher;
  fused.graph.observe(&watcher);
  fused.step();
  apart.step();
  EXPECT_EQ(watcher.forward,
            (std::vector<std::string>{"stem", "conv", "short", "short_bn", "bn", "dense"}));
  EXPECT_EQ(fused.loss(), apart.loss());
  // The layouts differ, since backward finishes parameters in another order.
  for (const Parameter& parameter : fused.graph.layout()) {
    for (const Parameter& other : apart.graph.layout()) {
      if (other.name != parameter.name) continue;
      for (std::size_t i = 0; i < parameter.range.size(); ++i) {
        EXPECT_NEAR(fused.gradient()[parameter.range.begin + i],
                    apart.gradient()[other.range.begin + i], 1e-14)
            << parameter.name;
      }
    }
  }
}

TEST(BatchNorm, AValueThatOthersReadTooStaysAValue) {
  GraphSpec spec("m", {6});
  const auto bn = spec.then("bn", batch_norm());
  const auto sum = spec.add("add", add(), {bn, bn});
  spec.add("again", add(), {sum, bn});
  spec.set_loss(mean_squared_error());
  Solo solo(spec, *kOps, 4);
  Watcher watcher;
  solo.graph.observe(&watcher);
  solo.step();
  EXPECT_EQ(watcher.forward, (std::vector<std::string>{"bn", "add", "again"}));
  EXPECT_LT(check_gradient(*kOps, spec).worst, 1e-6);
}

TEST(BatchNorm, FollowsMeanAndUnbiasedVarianceAndEvaluatesByThem) {
  GraphSpec spec("m", {2});
  spec.then("bn", batch_norm({.momentum = 0.75}));
  spec.set_loss(mean_squared_error());
  Solo solo(spec, *kOps, 4);
  ASSERT_EQ(solo.graph.statistics().size(), 2u);
  EXPECT_EQ(solo.graph.statistics()[0].name, "bn.mean");
  EXPECT_EQ(solo.graph.statistics()[1].name, "bn.variance");
  const std::span<double> averages = solo.graph.statistic_values();
  EXPECT_EQ(std::vector<double>(averages.begin(), averages.end()),
            (std::vector<double>{0, 0, 1, 1}));
  const double* x = solo.graph.input().as<double>();
  solo.step();
  for (std::size_t c = 0; c < 2; ++c) {
    double mean = 0, variance = 0;
    for (std::size_t row = 0; row < 4; ++row) mean += x[2 * row + c] / 4;
    for (std::size_t row = 0; row < 4; ++row) variance += std::pow(x[2 * row + c] - mean, 2) / 3;
    EXPECT_NEAR(averages[c], 0.25 * mean, 1e-14);
    EXPECT_NEAR(averages[2 + c], 0.75 + 0.25 * variance, 1e-14);
  }
  solo.context.training = false;
  const std::vector<double> before(averages.begin(), averages.end());
  solo.graph.forward(solo.context, {});
  EXPECT_EQ(std::vector<double>(averages.begin(), averages.end()), before);
  for (std::size_t i = 0; i < 8; ++i) {
    const double expected = (x[i] - before[i % 2]) / std::sqrt(before[2 + i % 2] + 1e-5);
    EXPECT_NEAR(solo.output()[i], expected, 1e-12);
  }
}

TEST(BatchNorm, OfNoRowsFollowsNothing) {
  Solo solo(residual(false), *kOps, 4);
  solo.fill(0, 0, 4, 3);
  const std::span<double> averages = solo.graph.statistic_values();
  const std::vector<double> before(averages.begin(), averages.end());
  solo.step();
  EXPECT_EQ(std::vector<double>(averages.begin(), averages.end()), before);
  for (double g : solo.gradient()) EXPECT_EQ(g, 0);
}

TEST(BatchNorm, RefusesWhatCannotBe) {
  EXPECT_THROW(batch_norm({.momentum = 1}), Error);
  EXPECT_THROW(batch_norm({.epsilon = 0}), Error);
}

// Three residual blocks, with dropout in one of them, whose masks must be the same both times.
GraphSpec blocks(bool marked) {
  GraphSpec spec("m", {6, 6, 4});
  auto value = spec.then("stem", convolution(8, 3, {.padding = 1}));
  for (const std::string name : {"a", "b", "c"}) {
    if (marked) spec.begin_block();
    auto main = spec.add(name + ".conv1", convolution(8, 3, {.padding = 1, .bias = false}), value);
    main = spec.add(name + ".bn1", batch_norm(), main);
    main = spec.add(name + ".relu1", relu(), main);
    if (name == "b") main = spec.add(name + ".dropout", dropout(0.3), main);
    main = spec.add(name + ".conv2", convolution(8, 3, {.padding = 1, .bias = false}), main);
    main = spec.add(name + ".bn2", batch_norm(), main);
    main = spec.add(name + ".add", add(), {main, value});
    value = spec.add(name + ".relu", relu(), main);
    if (marked) spec.end_block();
  }
  spec.then("dense", dense(3));
  spec.set_loss(softmax_cross_entropy());
  return spec;
}

TEST(Recompute, GivesTheSameBitsInLessMemory) {
  Solo kept(blocks(true), *kOps, 4), again(blocks(true), *kOps, 4, 1, {.recompute = true});
  for (int step = 0; step < 3; ++step) {
    kept.step(step > 0);
    again.step(step > 0);
    EXPECT_EQ(again.loss(), kept.loss());
    EXPECT_EQ(again.gradient(), kept.gradient());
  }
  const auto averages = [](Solo& solo) {
    const std::span<double> all = solo.graph.statistic_values();
    return std::vector<double>(all.begin(), all.end());
  };
  EXPECT_EQ(averages(again), averages(kept));
  EXPECT_LT(double(again.graph.activation_bytes()), 0.8 * double(kept.graph.activation_bytes()));
}

TEST(Recompute, RunsOnceMoreWhatBackwardReadsAndNothingElse) {
  Solo solo(blocks(true), *kOps, 2, 1, {.recompute = true});
  Watcher watcher;
  solo.graph.observe(&watcher);
  solo.step();
  EXPECT_EQ(watcher.backward,
            (std::vector<std::string>{"dense",     "c.conv1", "c.bn1",   "c.conv2", "c.bn2",
                                      "c.conv2",   "c.bn1",   "c.conv1", "b.conv1", "b.bn1",
                                      "b.dropout", "b.conv2", "b.bn2",   "b.conv2", "b.dropout",
                                      "b.bn1",     "b.conv1", "a.conv1", "a.bn1",   "a.conv2",
                                      "a.bn2",     "a.conv2", "a.bn1",   "a.conv1", "stem"}));
}

TEST(Recompute, OfFrozenLayersRunsNothingAgain) {
  GraphSpec spec = blocks(true);
  for (const char* name : {"stem", "a.", "b."}) spec.freeze(name);
  Solo kept(spec, *kOps, 3), again(spec, *kOps, 3, 1, {.recompute = true});
  Watcher watcher;
  again.graph.observe(&watcher);
  kept.step();
  again.step();
  EXPECT_EQ(again.gradient(), kept.gradient());
  for (const std::string& name : watcher.backward) EXPECT_FALSE(name.starts_with("a.")) << name;
}

// A frozen layer has no backward, but runs again where a trained one behind it reads its output.
TEST(Recompute, OfABlockThatIsFrozenInPartGivesTheSameBits) {
  for (const std::vector<const char*>& frozen :
       {std::vector<const char*>{"stem", "a.conv1", "a.bn1"}, {"stem", "a.", "b.conv1", "b.bn1"}}) {
    GraphSpec spec = blocks(true);
    for (const char* name : frozen) spec.freeze(name);
    Solo kept(spec, *kOps, 4), again(spec, *kOps, 4, 1, {.recompute = true});
    for (int step = 0; step < 2; ++step) {
      kept.step();
      again.step();
      EXPECT_EQ(again.gradient(), kept.gradient());
    }
  }
}

TEST(Recompute, OfAModelWithoutBlocksIsRefused) {
  try {
    Solo solo(blocks(false), *kOps, 2, 1, {.recompute = true});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model m has no blocks"));
  }
}

}  // namespace batch_norm_test
}  // namespace lockstep::engine
