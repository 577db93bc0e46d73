// SPDX-License-Identifier: MIT
// Tests the minimal traffic and operations of a step: against manual counts for small layers, and
// against known figures for ResNet-50.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/roofline.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "engine/optim/optimizer.h"
#include "models/registry.h"

namespace lockstep::bench {
namespace bench_traffic_test {

using engine::DType;

const PartTraffic& part(const StepTraffic& step, std::string_view name) {
  const auto found = std::ranges::find(step.parts, name, &PartTraffic::part);
  EXPECT_NE(found, step.parts.end()) << name;
  return *found;
}

engine::UpdateRule momentum() {
  return engine::optim::sgd({.rate = 0.1, .momentum = 0.9}).rule;
}

TEST(Traffic, OfDenseLayersIsOperandsOnceAKernel) {
  engine::GraphSpec graph("two dense layers", {4, 1, 1});
  graph.then("one", engine::dense(8));
  graph.then("relu", engine::relu());  // fused into `one`
  graph.then("two", engine::dense(2));
  graph.set_loss(engine::softmax_cross_entropy());
  constexpr double kRows = 100, kWidth = 4;
  const StepTraffic step = count_step(graph, DType::kFloat32, 100, momentum(), 1);
  EXPECT_EQ(part(step, "input").bytes(), kRows * 4 * (4 + kWidth));
  EXPECT_EQ(part(step, "forward  one").bytes(), kWidth * (kRows * (4 + 8) + 4 * 8 + 8));
  EXPECT_EQ(part(step, "forward  one").operations(), 2 * kRows * 4 * 8);
  EXPECT_EQ(part(step, "forward  two").bytes(), kWidth * (kRows * (8 + 2) + 8 * 2 + 2));
  const PartTraffic& two = part(step, "backward two");
  ASSERT_EQ(two.kernels.size(), 3u);  // bias; gradients of data and weights
  EXPECT_EQ(two.kernels[0].bytes, kWidth * (kRows * 2 + 2));
  EXPECT_EQ(two.kernels[1].bytes, kWidth * (kRows * (2 + 8) + 8 * 2));
  EXPECT_EQ(two.kernels[2].bytes, kWidth * (kRows * (2 + 8) + 8 * 2));
  EXPECT_EQ(two.operations(), 2 * 2 * kRows * 8 * 2);
  const PartTraffic& one = part(step, "backward one");
  ASSERT_EQ(one.kernels.size(), 2u) << "nobody wants the gradient of the input";
  EXPECT_EQ(one.kernels[0].bytes, kWidth * (kRows * 3 * 8 + 8)) << "y is read, dy read and masked";
  EXPECT_EQ(one.operations(), 2 * kRows * 4 * 8);
}

TEST(Traffic, OfUpdatesIsTwentyBytesAParameterAndLessWhereTheyAreShared) {
  engine::GraphSpec graph("a dense layer", {64, 1, 1});
  graph.then("dense", engine::dense(16, {.bias = false}));
  graph.set_loss(engine::softmax_cross_entropy());
  constexpr double kParameters = 64 * 16;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const StepTraffic alone = count_step(graph, dtype, 1, momentum(), 1);
    EXPECT_EQ(part(alone, "sums and updates").bytes(), 20 * kParameters) << engine::name(dtype);
    const StepTraffic of_four = count_step(graph, dtype, 1, momentum(), 4);
    const double width = double(size_of(dtype)), once = dtype == DType::kFloat32 ? 12 : 16;
    EXPECT_EQ(part(of_four, "sums and updates").bytes(), (2 * width + once / 4) * kParameters);
  }
}

TEST(Traffic, ABoundIsTheLongerOfBytesAndOperationsOfEachKernel) {
  PartTraffic both{"both", {{"moves", 8e9, 1e12}, {"computes", 1e9, 4e12}}};
  EXPECT_DOUBLE_EQ(both.seconds({4e9, 2e12}), 2 + 2);
  EXPECT_DOUBLE_EQ((StepTraffic{{both, both}}).seconds({4e9, 1e12}), 2 * (2 + 4));
}

// The step needs 24.3 GFLOP per image. In 16 bits, it moves the 331.5 MB per image of
// bench/RESULTS.md, plus the input and updates, which are included here.
TEST(Traffic, OfResnet50IsWhatIsKnownOfIt) {
  constexpr std::size_t kRows = 256;
  const StepTraffic step =
      count_step(models::build("resnet50"), DType::kBFloat16, kRows, momentum(), 1);
  EXPECT_NEAR(step.operations() / kRows / 1e9, 24.3, 0.3);
  EXPECT_NEAR(step.bytes() / kRows / 1e6, 333.4, 0.01 * 333.4);
  // Rows count in full, parameters once.
  const StepTraffic twice =
      count_step(models::build("resnet50"), DType::kBFloat16, 2 * kRows, momentum(), 1);
  EXPECT_DOUBLE_EQ(twice.operations(), 2 * step.operations());
  EXPECT_LT(twice.bytes(), 2 * step.bytes());
  EXPECT_GT(twice.bytes(), 1.97 * step.bytes());
}

TEST(Traffic, EveryModelCanBeCounted) {
  for (const std::string& name : models::names()) {
    const StepTraffic step = count_step(models::build(name), DType::kBFloat16, 32, momentum(), 2);
    EXPECT_GT(step.bytes(), 0) << name;
    EXPECT_GT(step.operations(), 0) << name;
    for (const PartTraffic& mine : step.parts) EXPECT_FALSE(mine.kernels.empty()) << mine.part;
  }
}

}  // namespace bench_traffic_test
}  // namespace lockstep::bench
