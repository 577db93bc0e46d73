// SPDX-License-Identifier: MIT
// Tests batch norm as a layer: its gradients, its fusion with neighbors, and its moving averages.
// Also tests recomputed blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// Returns a residual block with a batch norm in its shortcut. `apart` prevents fusion by a dropout
// of rate 0 after each layer.
GraphSpec residual(bool apart, BatchNormOptions options = {}, BatchNormOptions shortcut = {}) {
  GraphSpec spec("m", {5, 4, 3});
  const auto between = [&](const std::string& name, GraphSpec::Value value) {
    return apart ? spec.add(name, dropout(0), value) : value;
  };
  const auto stem = spec.then("stem", convolution(4, 3, {.padding = 1}));
  const auto main = spec.add("conv", convolution(4, 3, {.padding = 1, .bias = false}), stem);
  const auto bn = between("a", spec.add("bn", batch_norm(options), main));
  const auto short_conv = spec.add("short", convolution(4, 1, {.bias = false}), stem);
  const auto short_bn = between("b", spec.add("short_bn", batch_norm(shortcut), short_conv));
  const auto sum = between("c", spec.add("add", add(), {bn, short_bn}));
  spec.add("relu", relu(), sum);
  spec.then("dense", dense(3));
  spec.set_loss(softmax_cross_entropy());
  return spec;
}

std::vector<std::string> layers_of(const GraphSpec& spec) {
  return Solo(spec, *kOps, 2).graph.layers();
}

// The layouts differ because backward finishes parameters in another order.
void expect_same_gradients(const Solo& fused, const Solo& apart) {
  ASSERT_EQ(fused.graph.layout().size(), apart.graph.layout().size());
  for (const Parameter& parameter : fused.graph.layout()) {
    const auto other = std::ranges::find(apart.graph.layout(), parameter.name, &Parameter::name);
    ASSERT_NE(other, apart.graph.layout().end()) << parameter.name;
    for (std::size_t i = 0; i < parameter.range.size() && !parameter.frozen; ++i) {
      EXPECT_NEAR(fused.gradient()[parameter.range.begin + i],
                  apart.gradient()[other->range.begin + i], 1e-14)
          << parameter.name;
    }
  }
}

TEST(BatchNorm, TakesInTheSumItsOtherBatchNormAndTheReluBehindIt) {
  Solo fused(residual(false), *kOps, 4), apart(residual(true), *kOps, 4);
  Watcher watcher;
  fused.graph.observe(&watcher);
  fused.step();
  apart.step();
  EXPECT_EQ(watcher.forward, (std::vector<std::string>{"stem", "conv", "short", "bn", "dense"}));
  EXPECT_EQ(fused.loss(), apart.loss());
  expect_same_gradients(fused, apart);
  EXPECT_LT(fused.graph.activation_bytes(), apart.graph.activation_bytes());
}

TEST(BatchNorm, KeepsItsNamesWhereItIsTakenIn) {
  const Graph graph(residual(false, {.synchronised = true}, {.synchronised = true}), *kOps, 2);
  std::vector<std::string> names;
  for (std::size_t k = 2; k < 6; ++k) names.push_back(graph.layout()[k].name);
  for (const Statistic& statistic : graph.statistics()) names.push_back(statistic.name);
  for (const ReductionSpec& reduction : graph.reductions()) names.push_back(reduction.name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "bn.scale", "bn.shift", "short_bn.scale", "short_bn.shift", "bn.mean",
                       "bn.variance", "short_bn.mean", "short_bn.variance", "bn.sums",
                       "bn.gradient_sums", "short_bn.sums", "short_bn.gradient_sums"}));
}

TEST(BatchNorm, OfAShortcutHasItsOwnOptionsAndGradients) {
  const BatchNormOptions options{.momentum = 0.5, .epsilon = 1e-3};
  const BatchNormOptions shortcut{.momentum = 0.75, .epsilon = 0.2};
  Solo fused(residual(false, options, shortcut), *kOps, 4),
      apart(residual(true, options, shortcut), *kOps, 4);
  for (int step = 0; step < 2; ++step) {
    fused.step(step > 0);
    apart.step(step > 0);
  }
  expect_same_gradients(fused, apart);
  const std::span<double> averages = fused.graph.statistic_values(),
                          others = apart.graph.statistic_values();
  for (const Statistic& statistic : fused.graph.statistics()) {
    const auto other =
        std::ranges::find(apart.graph.statistics(), statistic.name, &Statistic::name);
    for (std::size_t i = 0; i < statistic.range.size(); ++i)
      EXPECT_NEAR(averages[statistic.range.begin + i], others[other->range.begin + i], 1e-14)
          << statistic.name;
  }
  for (Solo* solo : {&fused, &apart}) {
    solo->context.training = false;
    solo->step();
  }
  expect_same_gradients(fused, apart);
  for (std::size_t i = 0; i < fused.output().size(); ++i)
    EXPECT_NEAR(fused.output()[i], apart.output()[i], 1e-14);
  for (const bool training : {true, false}) {
    GradientCheckOptions check;
    check.training = training;
    const GradientCheck found = check_gradient(*kOps, residual(false, options, shortcut), check);
    EXPECT_LT(found.worst, 1e-6) << found.place;
  }
}

TEST(BatchNorm, OfAShortcutHasTheSameGradientsBesideFrozenParameters) {
  for (const std::vector<const char*>& frozen : {std::vector<const char*>{"bn."},
                                                 {"short_bn."},
                                                 {"stem", "short."},
                                                 {"stem", "conv."},
                                                 {"stem", "conv.", "short.", "bn."}}) {
    GraphSpec specs[2] = {residual(false), residual(true)};
    for (GraphSpec& spec : specs)
      for (const char* prefix : frozen) spec.freeze(prefix);
    Solo fused(specs[0], *kOps, 4), apart(specs[1], *kOps, 4);
    fused.step();
    apart.step();
    expect_same_gradients(fused, apart);
  }
}

// Simulates a second replica with the same batch: sums are twice as large, over twice as many
// values.
class TwiceContext final : public Context {
 public:
  TwiceContext(Ops& o, const Graph& graph) : Context(o), alone_(o, graph) {
    for (const ReductionSpec& reduction : graph.reductions()) counts_.push_back(reduction.count);
  }
  std::byte* exchange(int point) override { return alone_.exchange(point); }
  void reduce(int point) override {
    double* const sums = reinterpret_cast<double*>(exchange(point));
    for (std::size_t i = 0; i < counts_[std::size_t(point)]; ++i) sums[i] *= 2;
    points.push_back(point);
  }
  std::vector<int> points;

 private:
  LocalContext alone_;
  std::vector<std::size_t> counts_;
};

TEST(BatchNorm, OfAShortcutAddsUpEachOfItsSumsOverReplicasOnce) {
  const GraphSpec spec = residual(false, {.synchronised = true}, {.synchronised = true});
  Solo solo(spec, *kOps, 4), plain(residual(false), *kOps, 4);
  TwiceContext context(*kOps, solo.graph);
  context.state = &solo.state;
  solo.graph.forward(context, {});
  solo.graph.evaluate_loss(context, true);
  solo.graph.backward(context, false, {});
  std::ranges::sort(context.points);
  EXPECT_EQ(context.points, (std::vector<int>{0, 1, 2, 3}));
  plain.step();
  EXPECT_NEAR(solo.loss(), plain.loss(), 1e-14);
  expect_same_gradients(solo, plain);
}

TEST(BatchNorm, OfAShortcutRunsByItselfWhereItCannotBeTakenIn) {
  const auto alone = [](const GraphSpec& spec) {
    return std::ranges::count(layers_of(spec), "short_bn") == 1;
  };
  EXPECT_FALSE(alone(residual(false)));
  EXPECT_TRUE(alone(residual(false, {.synchronised = true})));
  EXPECT_TRUE(alone(residual(false, {}, {.synchronised = true})));
  // Another reader, a ReLU, or the end of a block stands between the shortcut's batch norm and the
  // sum.
  for (const int kind : {0, 1, 2}) {
    GraphSpec spec("m", {4});
    if (kind == 2) spec.begin_block();
    auto shortcut = spec.add("short_bn", batch_norm(), spec.input());
    if (kind == 1) shortcut = spec.add("short_relu", relu(), shortcut);
    if (kind == 2) spec.end_block();
    const auto main = spec.add("dense", dense(4), kind == 0 ? shortcut : spec.input());
    spec.add("add", add(), {spec.add("bn", batch_norm(), main), shortcut});
    spec.set_loss(mean_squared_error());
    const std::vector<std::string> layers = layers_of(spec);
    EXPECT_EQ(layers, (std::vector<std::string>{"short_bn", "dense", "bn"})) << kind;
    EXPECT_LT(check_gradient(*kOps, spec).worst, 1e-6) << kind;
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

// Returns three residual blocks. One has dropout, whose masks must be the same in both passes.
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

// The gradient is the same if the layer into which the batch norm is fused is recomputed.
TEST(Recompute, OfABatchNormOfAShortcutGivesTheSameBits) {
  GraphSpec spec("m", {4, 4, 3});
  const auto stem = spec.then("stem", convolution(4, 3, {.padding = 1}));
  spec.begin_block();
  const auto bn = spec.add("bn", batch_norm(), spec.add("conv", convolution(4, 1), stem));
  const auto other = spec.add("short_bn", batch_norm(), spec.add("short", convolution(4, 1), stem));
  spec.add("relu", relu(), spec.add("add", add(), {bn, other}));
  spec.then("last", convolution(4, 3, {.padding = 1}));
  spec.end_block();
  spec.then("dense", dense(3));
  spec.set_loss(softmax_cross_entropy());
  Solo kept(spec, *kOps, 4), again(spec, *kOps, 4, 1, {.recompute = true});
  Watcher watcher;
  again.graph.observe(&watcher);
  kept.step();
  again.step();
  EXPECT_EQ(watcher.backward, (std::vector<std::string>{"dense", "conv", "short", "bn", "last",
                                                        "bn", "short", "conv", "stem"}));
  EXPECT_EQ(again.gradient(), kept.gradient());
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

// A frozen layer has no backward, but it is recomputed if a trained layer after it reads its
// output.
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
