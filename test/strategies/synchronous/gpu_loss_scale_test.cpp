// SPDX-License-Identifier: MIT
// Training in float16 with a loss scale on a fake GPU, and a dynamic scale with queued kernels. The
// fake GPU runs its streams as late as possible and in an odd order.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/cpu/cpu_device.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/strategies/inspection.h"
#include "test/strategies/overflow.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace gpu_loss_scale_test {

using engine::DType;
using engine::LossScaling;

namespace fs = std::filesystem;
namespace optim = engine::optim;

const optim::Schedule kConstant{.kind = optim::Schedule::Kind::kConstant};
const optim::Optimizer kMomentum =
    optim::sgd({.rate = 0.02, .momentum = 0.9, .schedule = kConstant});

strategies::SynchronousOptions on(engine::Device& device, int count,
                                  std::optional<LossScaling> scaling = {},
                                  const std::string& update = "auto") {
  auto options = replicas(count);
  options.devices.assign(std::size_t(count), &device);
  options.step.bucket_bytes = engine::kBlock * sizeof(float);
  options.step.loss_scale = scaling;
  options.step.update = strategies::update_of(update);
  return options;
}

Job job(DType dtype, std::int64_t steps, const optim::Optimizer& optimizer = kMomentum) {
  Job job;
  job.dtype = dtype;
  job.steps = steps;
  job.optimizer = optimizer;
  return job;
}

TEST(GpuLossScale, Float16TrainsAsFloat32DoesUpToItsRounding) {
  const auto gpu = engine::cuda::fake_device();
  const Outcome wanted = train_mirrored(job(DType::kFloat32, 20), on(*gpu, 1));
  const Outcome one = train_mirrored(job(DType::kFloat16, 20), on(*gpu, 1));
  EXPECT_EQ(one.history.skipped_steps, 0);
  EXPECT_EQ(one.history.loss_scale, 65536);
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(one.losses[i], wanted.losses[i], 1e-2 * wanted.losses[i]);
  EXPECT_LT(relative(one.weights[0], wanted.weights[0]), 0x1p-9);
  for (const int count : {2, 3})
    for (const std::string update : {"fused", "separate"}) {
      const Outcome many = train_mirrored(job(DType::kFloat16, 20), on(*gpu, count, {}, update));
      for (const auto& mirror : many.weights) EXPECT_EQ(mirror, many.weights[0]);
      EXPECT_LT(relative(many.weights[0], one.weights[0]), 0x1p-9) << count << " " << update;
    }
}

// Fused and separate use one sum and one update with the same bits, because finiteness must be
// known in between.
TEST(GpuLossScale, FusedAndSeparateHaveTheSameBits) {
  const auto gpu = engine::cuda::fake_device();
  for (const optim::Optimizer& optimizer :
       {kMomentum, optim::adam({.rate = 0.003}), optim::sgd({.rate = 0.02, .clip_norm = 0.05})}) {
    const Job one = job(DType::kFloat16, 8, optimizer);
    EXPECT_EQ(train_mirrored(one, on(*gpu, 3, {}, "fused")).weights,
              train_mirrored(one, on(*gpu, 3, {}, "separate")).weights);
  }
}

// Has inputs and targets so small that the gradients of weights are small, too.
class Faint : public Table {
 public:
  Faint() : Table(39, 20, 5) {}
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    Table::read(index, input, target);
    for (float& number : input) number *= 0x1p-13f;
    for (float& number : target) number *= 0x1p-13f;
  }
};

// Gradients of 1e-8 are zero in float16; a learning rate makes them count.
TEST(GpuLossScale, SmallGradientsSurviveWithItAlone) {
  const auto gpu = engine::cuda::fake_device();
  const auto train = [&](DType dtype, double rate, std::optional<LossScaling> scaling) {
    auto options = on(*gpu, 2, scaling);
    options.step.dtype = dtype;
    strategies::Mirrored strategy(options);
    engine::GraphSpec graph("faint", {20});
    graph.then("dense", engine::dense(5, {.bias = false}));
    graph.set_loss(engine::mean_squared_error());
    engine::Trainer trainer(strategy, graph, optim::sgd({.rate = rate, .schedule = kConstant}),
                            {.log = engine::Log("", engine::Log::Level::kError)});
    trainer.fit(Faint(), {.steps = 6, .global_batch = 11, .prefetch_threads = 0});
    return weights(strategy, 0);
  };
  const auto change = [](std::vector<double> after, const std::vector<double>& before) {
    for (std::size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
    return after;
  };
  constexpr double kRate = 0x1p20;
  const auto wanted = change(train(DType::kFloat32, kRate, {}), train(DType::kFloat32, 0, {}));
  const std::vector<double> start = train(DType::kFloat16, 0, {});
  EXPECT_EQ(train(DType::kFloat16, kRate, LossScaling()), start) << "nothing vanished";
  for (const auto& scaling :
       {std::optional<LossScaling>(), std::optional(LossScaling{.start = 65536})})
    EXPECT_LT(relative(change(train(DType::kFloat16, kRate, scaling), start), wanted), 0.05);
}

// The scale falls until gradients fit, and the host does not wait for it.
TEST(GpuLossScale, FindsAScaleFromOneThatIsTooLarge) {
  for (const bool adam : {false, true}) {
    const std::string update = adam ? "fused" : "separate";
    Outcome outcomes[2];
    std::vector<double> scales;
    std::vector<std::int64_t> skipped;
    for (const std::uint64_t seed : {1, 2}) {
      const auto gpu = engine::cuda::fake_device({.seed = seed});
      scales.clear(), skipped.clear();
      Job one = job(DType::kFloat16, 40, adam ? optim::adam({.rate = 0.003}) : kMomentum);
      one.on_step = [&](const engine::StepReport& report) {
        scales.push_back(report.loss_scale), skipped.push_back(report.skipped_steps);
      };
      outcomes[seed - 1] =
          train_mirrored(one, on(*gpu, 2, LossScaling{.dynamic = true, .start = 0x1p36}, update));
    }
    EXPECT_EQ(outcomes[0].weights, outcomes[1].weights);
    EXPECT_EQ(outcomes[0].weights[0], outcomes[0].weights[1]);
    EXPECT_LT(outcomes[0].losses.back(), outcomes[0].losses.front());
    EXPECT_GT(outcomes[0].history.skipped_steps, 8);
    EXPECT_LT(outcomes[0].history.skipped_steps, 30);
    ASSERT_EQ(scales.size(), 40u);
    for (std::size_t i = 0; i < 40; ++i) {
      if (i % 4 == 3) continue;  // the epoch's end reports skips at once
      EXPECT_EQ(scales[i], 0x1p36 / std::exp2(double(skipped[i]))) << i;
    }
    EXPECT_EQ(skipped.back(), outcomes[0].history.skipped_steps);
  }
}

// A GPU makes the same decisions as the processor in each step, also with micro-batches.
TEST(GpuLossScale, SkipsWhatTheProcessorSkips) {
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  const LossScaling scaling{.dynamic = true, .start = 64, .growth_interval = 3};
  for (const optim::Optimizer& optimizer : {kMomentum, optim::lars({.rate = 0.02})})
    for (const int accumulate : {1, 2}) {
      const auto train = [&](engine::Device& device, std::vector<double>& scales) {
        Job one = job(DType::kFloat32, 14, optimizer);
        one.accumulate = accumulate;
        one.loss = overflowing({0, 5, 6});
        one.fallback = engine::Fallback::kCpu;
        one.on_step = [&](const engine::StepReport& report) {
          scales.push_back(report.loss_scale);
        };
        return train_mirrored(one, on(device, 2, scaling));
      };
      std::vector<double> here, there;
      const Outcome on_gpu = train(*gpu, here), on_processor = train(*processor, there);
      EXPECT_EQ(here, there);
      EXPECT_EQ(on_gpu.history.skipped_steps, 3);
      EXPECT_LT(relative(on_gpu.weights[0], on_processor.weights[0]), 1e-5);
      EXPECT_EQ(on_gpu.weights[0], on_gpu.weights[1]);
    }
}

TEST(GpuLossScale, ARunThatGoesOnHasTheSameBitsOverSkips) {
  const auto gpu = engine::cuda::fake_device();
  std::string name = (fs::temp_directory_path() / "lockstep-scale-XXXXXX").string();
  const std::string folder = mkdtemp(name.data());
  const auto options =
      on(*gpu, 2, LossScaling{.dynamic = true, .start = 0x1p30, .growth_interval = 4});
  Job one = job(DType::kFloat16, 30, optim::adam({.rate = 0.003, .schedule = kConstant}));
  const Outcome whole = train_mirrored(one, options);
  EXPECT_GT(whole.history.skipped_steps, 5);
  one.checkpoints = folder;
  for (const std::int64_t stop : {3, 17, 30}) {
    one.steps = stop;
    const Outcome part = train_mirrored(one, options);
    if (stop < 30) continue;
    EXPECT_EQ(part.weights, whole.weights);
    EXPECT_EQ(part.history.skipped_steps, whole.history.skipped_steps);
    EXPECT_EQ(part.history.loss_scale, whole.history.loss_scale);
  }
  fs::remove_all(folder);
}

}  // namespace gpu_loss_scale_test
}  // namespace lockstep::test
