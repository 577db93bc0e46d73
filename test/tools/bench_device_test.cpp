// SPDX-License-Identifier: MIT
// Tests bench_device and bench_step on a fake GPU, which runs its streams as late as possible:
// results are checked, and figures have their documented meaning. Times are meaningless here.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/device_figures.h"
#include "bench/device_step.h"
#include "engine/base/error.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "engine/optim/optimizer.h"
#include "strategies/synchronous/mirrored.h"
#include "test/engine/cuda/fake_devices.h"
#include "tools/bench/ceilings.h"
#include "tools/bench/flat_replicas.h"

namespace lockstep::bench {
namespace bench_device_test {

using engine::DType;
using tools::bench::CopyCeiling;
using tools::bench::FlatOptions;
using tools::bench::FlatReplicas;
using tools::bench::ProductCeiling;

FlatOptions flat(engine::Device& device, DType dtype, int replicas, const char* update) {
  FlatOptions options;
  options.devices.assign(std::size_t(replicas), &device);
  options.elements = 5000;  // not a multiple of a block
  options.dtype = dtype;
  options.rule = engine::optim::sgd({.rate = 0.1, .momentum = 0.9}).rule;
  options.update = strategies::update_of(update);
  options.bucket_bytes = std::size_t(1) << 20;
  return options;
}

TEST(BenchDevice, SumsOfAllReplicasAreExactAgainAndAgain) {
  const auto gpu = engine::cuda::fake_device();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int replicas : {2, 3, 4}) {
      FlatReplicas sums(flat(*gpu, dtype, replicas, "separate"));
      for (int again = 0; again < 2; ++again) {
        EXPECT_GT(sums.all_reduce(1), 0);
        EXPECT_EQ(sums.wrong_sums(), 0u);
        EXPECT_GT(sums.all_reduce(3), 0);
        EXPECT_GT(sums.wrong_sums(), 0u) << "sums of sums are no sums";
      }
      EXPECT_EQ(sums.buckets(), 1u);
      EXPECT_EQ(sums.algorithm(), "direct");
    }
  }
}

// The largest sum of any number of replicas stays finite after the maximal number of calls.
TEST(BenchDevice, TimedSumsStayFinite) {
  const auto gpu = engine::cuda::fake_device();
  for (const int replicas : {2, 3, 8}) {
    FlatReplicas sums(flat(*gpu, DType::kFloat32, replicas, "separate"));
    const double exponent = 8 + sums.most_calls() * std::log2(replicas);
    EXPECT_LT(exponent, 128) << replicas;
    EXPECT_GT(sums.most_calls(), 30) << replicas;
  }
}

TEST(BenchDevice, UpdatesInsideTheSumsAndSeparateHaveTheSameBits) {
  const auto gpu = engine::cuda::fake_device();
  FlatReplicas fused(flat(*gpu, DType::kFloat32, 3, "fused"));
  FlatReplicas separate(flat(*gpu, DType::kFloat32, 3, "separate"));
  const std::uint64_t before = fused.same_weights();
  EXPECT_EQ(separate.same_weights(), before);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_GT(fused.update(1), 0);
    EXPECT_GT(separate.update(1), 0);
  }
  EXPECT_EQ(fused.same_weights(), separate.same_weights());
  EXPECT_NE(fused.same_weights(), before) << "nothing was updated";
}

TEST(BenchDevice, BytesAreThoseOfGradientsWeightsAndState) {
  const auto gpu = engine::cuda::fake_device();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    FlatReplicas alone(flat(*gpu, dtype, 1, "fused"));
    EXPECT_EQ(alone.fused_bytes(), 5000 * 20);
  }
}

TEST(BenchDevice, ACeilingIsCheckedAndCountsWhatItMoves) {
  const auto gpu = engine::cuda::fake_device();
  const auto ops = gpu->ops(DType::kBFloat16, {});
  CopyCeiling copy(*ops, 8192);
  EXPECT_FALSE(copy.holds()) << "nothing was copied yet";
  EXPECT_GT(copy.seconds(1), 0);
  EXPECT_TRUE(copy.holds());
  EXPECT_EQ(copy.moved(), 2 * 8192);
  ProductCeiling product(*ops, 24);
  EXPECT_FALSE(product.finite()) << "nothing was multiplied yet";
  EXPECT_GT(product.seconds(2), 0);
  EXPECT_TRUE(product.finite());
  EXPECT_EQ(product.operations(), 2 * 24 * 24 * 24);
}

TEST(BenchDevice, TablesHaveTheirFigures) {
  const auto gpu = engine::cuda::fake_device();
  DeviceOptions options;
  options.parameters = 3000;
  options.update_replicas = 2;
  options.copied = 16384;
  options.turns = 2;
  options.batch_seconds = 1e-6;
  const auto share = [](const nlohmann::json& row, const nlohmann::json& table) {
    EXPECT_GT(row["microseconds"], 0);
    EXPECT_NEAR(row["share_of_copy"].get<double>(),
                row["gb_s"].get<double>() / table["copy_gb_s"].get<double>(), 1e-9);
  };
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    options.dtype = dtype;
    const nlohmann::json optimizer = optimizer_figures(*gpu, options);
    EXPECT_EQ(optimizer["bytes_per_parameter"], 20);
    share(optimizer, optimizer);
    const nlohmann::json update = update_figures(*gpu, options);
    EXPECT_EQ(update["ways"].size(), 4u);
    const auto best = [&](const std::string& way) {
      return std::min(update["ways"][way]["microseconds"].get<double>(),
                      update["ways"][way + "_in_one"]["microseconds"].get<double>());
    };
    EXPECT_NEAR(update["fused_over_separate"].get<double>(), best("separate") / best("fused"),
                1e-9);
  }
}

TEST(BenchDevice, OptionsThatCannotBeAreRefused) {
  const auto gpu = engine::cuda::fake_device();
  EXPECT_THROW(FlatReplicas(flat(*gpu, DType::kFloat32, 17, "separate")), engine::Error);
  DeviceOptions none;
  none.turns = 0;
  EXPECT_THROW(optimizer_figures(*gpu, none), engine::Error);
}

engine::GraphSpec small_graph() {
  engine::GraphSpec graph("small", {6, 6, 1});
  graph.then("conv", engine::convolution(4, 3));
  graph.then("relu", engine::relu());
  graph.then("dense", engine::dense(5));
  graph.set_loss(engine::softmax_cross_entropy());
  return graph;
}

TEST(BenchDevice, StepsAreThoseOfTheTrainingLoopAndLayersComeApart) {
  const auto gpu = engine::cuda::fake_device();
  for (const int replicas : {1, 2}) {
    const std::vector<engine::Device*> devices(std::size_t(replicas), gpu.get());
    strategies::SynchronousOptions mirrored;
    mirrored.devices = devices;
    strategies::Mirrored strategy(mirrored);
    DeviceStepOptions options;
    options.batch = 8;
    options.steps = 12;
    options.warm_up = 4;
    options.group = 4;
    options.layer_steps = 2;
    options.ceiling_turns = 2;
    options.product = 32;
    options.copied = 8192;
    options.dtype = gpu->default_dtype();
    const nlohmann::json found = device_step(strategy, devices, small_graph(), options);
    EXPECT_EQ(found["groups"].size(), 3u) << "whole groups behind the warm-up";
    EXPECT_EQ(found["replicas"], replicas);
    EXPECT_EQ(found["device"], "cuda:0");
    const nlohmann::json& roof = found["roofline"];
    const double rate = found["examples_per_second"].get<double>();
    EXPECT_NEAR(roof["share"].get<double>(), rate / roof["examples_per_second"].get<double>(),
                1e-9);
    double least = 0;
    int timed = 0;
    for (const nlohmann::json& part : found["parts"]) {
      least += part.value("bound_milliseconds", 0.0);
      timed += part["milliseconds"].is_number();
    }
    EXPECT_NEAR(roof["milliseconds"].get<double>(), replicas * least, 1e-9 * least)
        << "replicas share their device's rates";
    EXPECT_EQ(timed, 7) << "input, loss, two layers forward and backward, what is exposed";
    EXPECT_NE(describe(found).find("share of that reached"), std::string::npos);
  }
}

TEST(BenchDevice, StepsThatHoldNoWholeGroupAreRefused) {
  const auto gpu = engine::cuda::fake_device();
  const std::vector<engine::Device*> devices{gpu.get()};
  strategies::SynchronousOptions mirrored;
  mirrored.devices = devices;
  strategies::Mirrored strategy(mirrored);
  DeviceStepOptions options;
  options.steps = 5;
  options.group = 10;
  EXPECT_THROW(device_step(strategy, devices, small_graph(), options), engine::Error);
}

}  // namespace bench_device_test
}  // namespace lockstep::bench
