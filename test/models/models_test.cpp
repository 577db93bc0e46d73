// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/nn/gradient_check.h"
#include "engine/nn/graph.h"
#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "models/registry.h"
#include "models/wide_deep.h"
#include "test/engine/nn/solo.h"

namespace lockstep::models {
namespace models_test {

using engine::DType;
using engine::Shape;
using testing::HasSubstr;

std::size_t count_parameters(const engine::GraphSpec& spec) {
  const auto ops = engine::reference_ops(DType::kFloat64);
  const engine::Graph graph(spec, *ops, 1);
  std::size_t count = 0;
  for (const engine::Parameter& parameter : graph.layout()) count += parameter.range.size();
  return count;
}

TEST(Models, HaveAsManyParametersAsTheirArchitectureSays) {
  const std::map<std::string, std::size_t> expected{
      {"lenet5", 61706},       {"mlp", 669706},
      {"mlp_wide", 20037642},  {"mnist_cnn", 1199882},
      {"resnet20", 272474},    {"resnet50", 25557032},
      {"wide_deep", 10098260}, {"wide_deep_10m", 100098300}};
  ASSERT_EQ(names().size(), expected.size());
  for (const std::string& name : names()) {
    EXPECT_EQ(count_parameters(build(name)), expected.at(name)) << name;
  }
}

std::vector<std::string> names_of_image_models() {
  std::vector<std::string> all = names();
  std::erase_if(all, [](const std::string& name) {
    return name.starts_with("wide_deep") || name.starts_with("resnet");
  });
  return all;
}

TEST(Models, TakeImagesOf28x28AndGiveTenLogits) {
  for (const std::string& name : names_of_image_models()) {
    const engine::GraphSpec spec = build(name);
    EXPECT_EQ(spec.name(), name);
    EXPECT_EQ(spec.input_shape(), (Shape{28, 28, 1}));
    EXPECT_EQ(spec.output_shape(), Shape{10});
    EXPECT_EQ(spec.target_columns(), 1u);
    EXPECT_TRUE(spec.loss().counts_correct());
  }
}

Shape shape_after(const engine::GraphSpec& spec, const std::string& layer) {
  for (std::size_t i = 0; i < spec.nodes().size(); ++i) {
    if (spec.nodes()[i].name == layer) return spec.shape({i + 1});
  }
  ADD_FAILURE() << spec.name() << " has no layer " << layer;
  return {};
}

TEST(Models, TheirImagesShrinkAsInThePapers) {
  const engine::GraphSpec lenet = build("lenet5");
  EXPECT_EQ(shape_after(lenet, "conv1"), (Shape{28, 28, 6}));
  EXPECT_EQ(shape_after(lenet, "pool1"), (Shape{14, 14, 6}));
  EXPECT_EQ(shape_after(lenet, "conv2"), (Shape{10, 10, 16}));
  EXPECT_EQ(shape_after(lenet, "pool2"), (Shape{5, 5, 16}));
  const engine::GraphSpec cnn = build("mnist_cnn");
  EXPECT_EQ(shape_after(cnn, "conv1"), (Shape{26, 26, 32}));
  EXPECT_EQ(shape_after(cnn, "conv2"), (Shape{24, 24, 64}));
  EXPECT_EQ(shape_after(cnn, "pool"), (Shape{12, 12, 64}));
}

TEST(Models, AreMadeOfTheLayersOfTheirArchitecture) {
  const auto layers = [](std::string_view name) {
    std::string text;
    const engine::GraphSpec spec = build(name);
    for (const auto& node : spec.nodes()) {
      const std::string line = node.layer->describe();
      text += line.substr(0, line.find_first_of(" ,")) + " ";
    }
    return text;
  };
  EXPECT_EQ(layers("mlp"), "dense relu dense relu dense ");
  EXPECT_EQ(layers("mlp_wide"), layers("mlp"));
  EXPECT_EQ(layers("lenet5"),
            "convolution tanh average_pool convolution tanh average_pool dense tanh dense tanh "
            "dense ");
  EXPECT_EQ(layers("mnist_cnn"), "convolution relu convolution relu max_pool dense relu dense ");
}

TEST(Models, GradientsAgreeWithDifferencesOnASampleOfTheirParameters) {
  const auto ops = engine::reference_ops(DType::kFloat64);
  for (const std::string& name : names_of_image_models()) {
    if (name == "mlp_wide") continue;  // wider mlp: same code, thirty times slower
    const engine::GradientCheck check =
        engine::check_gradient(*ops, build(name), {.rows = 1, .examples = 1, .samples = 2});
    EXPECT_LT(check.worst, 1e-5) << name << ": " << check.place;
    EXPECT_GT(check.checked, 10u) << name;
    EXPECT_LE(check.kinks, 2u) << name;
  }
}

// Returns the relative distance over all numbers.
double distance(const std::vector<double>& found, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

TEST(Models, MakeTheStepOfTheReferenceOnTheProcessorInFloat32) {
  const auto devices = engine::host_devices();
  const auto fast = engine::find(devices, {"cpu", 0}).ops(DType::kFloat32, {});
  const auto exact = engine::reference_ops(DType::kFloat64);
  for (const std::string& name : names_of_image_models()) {
    if (name == "mlp_wide") continue;
    engine::Solo expected(build(name), *exact, 3), found(build(name), *fast, 3);
    expected.step();
    found.step();
    EXPECT_LT(distance(found.output(), expected.output()), 1e-5) << name;
    EXPECT_LT(distance(found.gradient(), expected.gradient()), 1e-5) << name;
    EXPECT_NEAR(found.loss(), expected.loss(), 1e-5) << name;
  }
}

// Returns a small table model, whose rows are read several times.
engine::GraphSpec small_wide_deep() {
  return wide_deep({.buckets = 5, .columns = 3});
}

float click_input(std::size_t row, std::size_t column) {
  engine::Random random(3, row * 64 + column);
  return column < 13 ? float(random.uniform()) : float(random.below(5));
}

TEST(WideDeep, TakesNumbersAndIdsAndGivesTheLogitsOfTwoClasses) {
  for (const char* name : {"wide_deep", "wide_deep_10m"}) {
    const engine::GraphSpec spec = build(name);
    EXPECT_EQ(spec.name(), name);
    EXPECT_EQ(spec.input_shape(), Shape{39});
    EXPECT_EQ(spec.output_shape(), Shape{2});
    EXPECT_EQ(shape_after(spec, "all"), Shape{13 + 26 * 8});
    EXPECT_TRUE(spec.loss().counts_correct());
  }
}

TEST(WideDeep, GradientsAgreeWithDifferences) {
  const auto ops = engine::reference_ops(DType::kFloat64);
  engine::GradientCheckOptions options{.rows = 4, .examples = 3, .samples = 40};
  options.input = click_input;
  const engine::GradientCheck check = engine::check_gradient(*ops, small_wide_deep(), options);
  EXPECT_LT(check.worst, 1e-5) << check.place;
  EXPECT_GT(check.checked, 200u);
  EXPECT_LE(check.kinks, 10u);
}

TEST(WideDeep, MakesTheStepOfTheReferenceOnTheProcessorInFloat32) {
  const auto devices = engine::host_devices();
  const auto fast = engine::find(devices, {"cpu", 0}).ops(DType::kFloat32, {});
  const auto exact = engine::reference_ops(DType::kFloat64);
  engine::Solo expected(small_wide_deep(), *exact, 6), found(small_wide_deep(), *fast, 6);
  for (engine::Solo* solo : {&expected, &found}) {
    std::vector<float> numbers;
    for (std::size_t i = 0; i < 6 * 39; ++i) numbers.push_back(click_input(i / 39, i % 39));
    solo->context.ops->load(numbers.data(), solo->graph.input());
    solo->step();
  }
  EXPECT_LT(distance(found.output(), expected.output()), 1e-5);
  EXPECT_LT(distance(found.gradient(), expected.gradient()), 1e-5);
  EXPECT_NEAR(found.loss(), expected.loss(), 1e-5);
}

// The memory of a parameter server's worker does not grow with the table.
TEST(WideDeep, OfTenMillionRowsTakesTheRoomOfItsBatchWhereRowsAreCompact) {
  const auto ops = engine::reference_ops(DType::kFloat32);
  const auto held = [&](const char* name) {
    const engine::Graph graph(build(name), *ops, 64, {.compact_rows = true});
    return graph.parameters();
  };
  EXPECT_EQ(held("wide_deep_10m"), held("wide_deep"));
  EXPECT_LT(held("wide_deep_10m"), 98200u + 64 * 26 * (8 + 2));
}

std::string error_of(std::string_view name) {
  try {
    build(name);
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "no error";
}

TEST(Models, AnUnknownNameIsAnsweredWithTheNearestAndAll) {
  EXPECT_EQ(error_of("mnist_cn"),
            "unknown model 'mnist_cn'; did you mean mnist_cnn? known: lenet5, mlp, mlp_wide, "
            "mnist_cnn, resnet20, resnet50, wide_deep, wide_deep_10m");
  EXPECT_THAT(error_of("lenet"), HasSubstr("did you mean lenet5?"));
  EXPECT_THAT(error_of("mlp-wide"), HasSubstr("did you mean mlp_wide?"));
  EXPECT_EQ(error_of("transformer"), "unknown model 'transformer'; known: " + list());
  EXPECT_EQ(error_of(""), "unknown model ''; known: " + list());
  EXPECT_EQ(list(),
            "lenet5, mlp, mlp_wide, mnist_cnn, resnet20, resnet50, wide_deep, wide_deep_10m");
}

}  // namespace models_test
}  // namespace lockstep::models
