// SPDX-License-Identifier: MIT
#include "engine/nn/graph_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace graph_spec_test {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "no error";
}

// Returns the error of a layer named "it" for an image of 6 x 6 x 4.
std::string error_of(const LayerPtr& layer, const Shape& input = {6, 6, 4}) {
  return error_of([&] { GraphSpec("m", input).then("it", layer); });
}

Shape shape_of(const LayerPtr& layer, const Shape& input) {
  GraphSpec spec("m", input);
  return spec.shape(spec.then("it", layer));
}

TEST(GraphSpec, ShapesFollowFromTheSizesOfTheLayers) {
  EXPECT_EQ(shape_of(dense(7), {6, 6, 4}), (Shape{7}));
  EXPECT_EQ(shape_of(convolution(5, 3), {6, 7, 4}), (Shape{4, 5, 5}));
  EXPECT_EQ(shape_of(convolution(5, 3, {.stride = 2}), {6, 7, 4}), (Shape{2, 3, 5}));
  EXPECT_EQ(shape_of(convolution(5, 3, {.padding = 1}), {6, 7, 4}), (Shape{6, 7, 5}));
  EXPECT_EQ(shape_of(max_pool(2), {6, 7, 4}), (Shape{3, 3, 4}));
  EXPECT_EQ(shape_of(average_pool(3, {.stride = 2, .padding = 1}), {6, 7, 4}), (Shape{3, 4, 4}));
  EXPECT_EQ(shape_of(global_average_pool(), {6, 7, 4}), (Shape{4}));
  EXPECT_EQ(shape_of(flatten(), {6, 7, 4}), (Shape{168}));
  EXPECT_EQ(shape_of(relu(), {6, 7, 4}), (Shape{6, 7, 4}));
  EXPECT_EQ(shape_of(dropout(0.5), {6, 7, 4}), (Shape{6, 7, 4}));
}

TEST(GraphSpec, ShapesThatDoNotFitAreNamedWithWhatWouldFit) {
  EXPECT_EQ(error_of([] {
              GraphSpec("m", {3, 3, 8}).then("conv2", convolution(4, 5));
            }),
            "convolution conv2: kernel 5 does not fit an input of 3x3x8 without padding");
  EXPECT_EQ(error_of(convolution(4, 9, {.padding = 1})),
            "convolution it: kernel 9 does not fit an input of 6x6x4 with padding 1");
  EXPECT_THAT(error_of(convolution(4, 3), {10}), HasSubstr("takes an image (height x width"));
  EXPECT_EQ(error_of(max_pool(7)),
            "max_pool it: kernel 7 does not fit an input of 6x6x4 without padding");
  EXPECT_THAT(error_of(average_pool(2), {10}), HasSubstr("average_pool it: takes an image"));
  EXPECT_THAT(error_of(global_average_pool(), {10}), HasSubstr("takes an image"));
  EXPECT_THAT(error_of(add()), HasSubstr("takes two inputs, not 1"));
  EXPECT_EQ(error_of([] {
              GraphSpec spec("m", {4});
              const auto a = spec.add("a", dense(3), spec.input());
              const auto b = spec.add("b", dense(5), spec.input());
              spec.add("sum", add(), {a, b});
            }),
            "add sum: takes two inputs of one shape, not 3 and 5");
  for (const LayerPtr& layer : {dense(2), convolution(2, 1), max_pool(2), relu(), tanh(), flatten(),
                                dropout(0.1), global_average_pool()}) {
    EXPECT_THAT(error_of([&] {
                  GraphSpec spec("m", {4, 4, 1});
                  spec.add("it", layer, {spec.input(), spec.input()});
                }),
                HasSubstr("takes one input, not 2"));
  }
}

TEST(GraphSpec, SizesThatMakeNoSenseAreNamed) {
  EXPECT_THAT(error_of([] { dense(0); }), HasSubstr("dense: has 0 outputs"));
  EXPECT_THAT(error_of([] { convolution(0, 3); }), HasSubstr("0 filters"));
  EXPECT_THAT(error_of([] { convolution(3, 0); }), HasSubstr("kernel is 0"));
  EXPECT_THAT(error_of([] { convolution(3, 3, {.stride = 0}); }), HasSubstr("stride is 0"));
  EXPECT_THAT(error_of([] { max_pool(0); }), HasSubstr("max_pool: kernel is 0"));
  EXPECT_THAT(error_of([] { average_pool(2, {.padding = 2}); }),
              HasSubstr("average_pool: padding 2 must be below the kernel's size 2"));
  EXPECT_THAT(error_of([] { dropout(1); }), HasSubstr("0 <= rate < 1"));
  EXPECT_THAT(error_of([] { dropout(-0.1); }), HasSubstr("0 <= rate < 1"));
}

TEST(GraphSpec, NamesAndValuesMustBeKnownAndNamesDiffer) {
  EXPECT_EQ(error_of([] {
              GraphSpec spec("m", {4});
              spec.then("a", dense(3));
              spec.then("a", dense(3));
            }),
            "model m has two layers named a; names must differ");
  EXPECT_THAT(error_of([] { GraphSpec("m", {4}).add("a", dense(3), GraphSpec::Value{1}); }),
              HasSubstr("dense a: takes the output of layer number 1, but there are 0"));
  EXPECT_THAT(error_of([] { GraphSpec("m", {4}).then("", dense(3)); }), HasSubstr("no name"));
  EXPECT_THAT(error_of([] { GraphSpec("m", {4}).then("a", nullptr); }), HasSubstr("layer a"));
  EXPECT_THAT(error_of([] { GraphSpec("m", {4}).shape({1}); }), HasSubstr("no value number 1"));
}

TEST(GraphSpec, TheLossMustBeThereAndFitTheOutput) {
  EXPECT_THAT(error_of([] { GraphSpec("m", {4}).loss(); }), HasSubstr("model m has no loss"));
  EXPECT_THAT(error_of([] { GraphSpec("m", {4}).set_loss(nullptr); }), HasSubstr("no loss"));
  EXPECT_EQ(error_of([] {
              GraphSpec("m", {2, 2, 3}).set_loss(softmax_cross_entropy());
            }),
            "loss softmax_cross_entropy: takes one logit for each of at least two classes, not "
            "2x2x3; end with dense(classes)");
  for (const double smoothing : {-0.1, 1.0, std::nan("")})
    EXPECT_EQ(error_of([&] { softmax_cross_entropy({.smoothing = smoothing}); }),
              fmt::format("loss softmax_cross_entropy: smoothing is {}; it must be at least 0 and "
                          "below 1",
                          smoothing));
  EXPECT_THAT(error_of([] { GraphSpec("m", {1}).set_loss(softmax_cross_entropy()); }),
              HasSubstr("at least two classes"));
  GraphSpec spec("m", {2, 2, 3});
  spec.set_loss(mean_squared_error());
  EXPECT_EQ(spec.target_columns(), 12u);
}

TEST(GraphSpec, FreezingNamesParametersByTheirBeginning) {
  GraphSpec spec("m", {4});
  spec.then("body", dense(3));
  spec.then("head", dense(2));
  spec.freeze("body");
  spec.freeze("head.b");
  EXPECT_TRUE(spec.frozen("body.weight"));
  EXPECT_TRUE(spec.frozen("body.bias"));
  EXPECT_FALSE(spec.frozen("head.weight"));
  EXPECT_TRUE(spec.frozen("head.bias"));
  EXPECT_EQ(error_of([&] { spec.freeze("tail"); }),
            "no parameter of model m begins with 'tail'; there are: body.weight, body.bias, "
            "head.weight, head.bias");
}

// Describes a small model with every size as an argument.
struct Sizes {
  std::size_t height = 8, channels = 2, filters = 3, kernel = 3, stride = 1, padding = 0;
  bool bias = true, average = false, frozen = false, skip = false, squared = false;
  std::size_t pool = 2, pool_stride = 2, pool_padding = 0, outputs = 6;
  double drop = 0.5;
};

std::string describe(const Sizes& s) {
  GraphSpec spec("m", {s.height, 8, s.channels});
  spec.then("conv", convolution(s.filters, s.kernel,
                                {.stride = s.stride, .padding = s.padding, .bias = s.bias}));
  const PoolOptions options{.stride = s.pool_stride, .padding = s.pool_padding};
  spec.then("pool", s.average ? average_pool(s.pool, options) : max_pool(s.pool, options));
  spec.then("drop", dropout(s.drop));
  const auto first = spec.then("first", dense(s.outputs));
  const auto second = spec.then("second", dense(s.outputs));
  spec.add("sum", add(), {s.skip ? first : second, second});
  spec.set_loss(s.squared ? mean_squared_error() : softmax_cross_entropy());
  if (s.frozen) spec.freeze("conv");
  return spec.describe();
}

TEST(GraphSpec, DescriptionsDifferWhenAnySizeDiffersAndAreEqualOtherwise) {
  std::vector<Sizes> variants;
  const auto vary = [&](auto Sizes::*member, auto value) {
    variants.emplace_back();
    variants.back().*member = value;
  };
  variants.emplace_back();
  vary(&Sizes::height, std::size_t(9));
  vary(&Sizes::channels, std::size_t(3));
  vary(&Sizes::filters, std::size_t(4));
  vary(&Sizes::kernel, std::size_t(2));
  vary(&Sizes::stride, std::size_t(2));
  vary(&Sizes::padding, std::size_t(1));
  vary(&Sizes::bias, false);
  vary(&Sizes::average, true);
  vary(&Sizes::frozen, true);
  vary(&Sizes::skip, true);
  vary(&Sizes::squared, true);
  vary(&Sizes::pool, std::size_t(3));
  vary(&Sizes::pool_stride, std::size_t(1));
  vary(&Sizes::pool_padding, std::size_t(1));
  vary(&Sizes::outputs, std::size_t(7));
  vary(&Sizes::drop, 0.25);
  std::set<std::string> texts;
  for (const Sizes& sizes : variants) {
    EXPECT_EQ(describe(sizes), describe(sizes));
    EXPECT_TRUE(texts.insert(describe(sizes)).second) << describe(sizes);
  }
}

TEST(GraphSpec, LayersDescribeAllOfTheirOwnSizes) {
  const auto text = [](const LayerPtr& layer) { return layer->describe(); };
  EXPECT_EQ(text(dense(7)), "dense 7, bias");
  EXPECT_EQ(text(dense(7, {.bias = false})->with_relu()), "dense 7, relu");
  EXPECT_EQ(text(convolution(5, 3, {.stride = 2, .padding = 1})),
            "convolution 5, kernel 3, stride 2, padding 1, bias");
  EXPECT_EQ(text(convolution(5, 3, {.bias = false})->with_relu()),
            "convolution 5, kernel 3, stride 1, padding 0, relu");
  EXPECT_EQ(text(max_pool(3)), "max_pool 3, stride 3, padding 0");
  EXPECT_EQ(text(average_pool(3, {.stride = 2, .padding = 1})),
            "average_pool 3, stride 2, padding 1");
  EXPECT_EQ(text(dropout(0.25)), "dropout 0.25");
  EXPECT_EQ(dense(7)->with_relu()->with_relu(), nullptr);
  EXPECT_EQ(convolution(5, 3)->with_relu()->with_relu(), nullptr);
}

TEST(GraphSpec, ADescriptionHasOneLineForEachLayer) {
  GraphSpec spec("tiny", {2, 2, 3});
  spec.then("first", dense(5));
  spec.then("relu", relu());
  spec.then("second", dense(2, {.bias = false}));
  spec.set_loss(softmax_cross_entropy());
  spec.freeze("first.bias");
  EXPECT_EQ(spec.describe(),
            "model tiny: input 2x2x3\n"
            "first: dense 5, bias; input 2x2x3 -> 5; weight 5x12 (glorot 12+5); "
            "bias 5 (constant 0), frozen\n"
            "relu: relu; first 5 -> 5\n"
            "second: dense 2; relu 5 -> 2; weight 2x5 (glorot 5+2)\n"
            "loss: softmax_cross_entropy\n");
  // Processes and checkpoints compare the description.
  spec.set_loss(softmax_cross_entropy({.smoothing = 0.1}));
  EXPECT_TRUE(spec.describe().ends_with("\nloss: softmax_cross_entropy smoothing 0.1\n"));
}

}  // namespace graph_spec_test
}  // namespace lockstep::engine
