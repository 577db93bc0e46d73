// SPDX-License-Identifier: MIT
// Training on the GPUs of this machine with NVIDIA's libraries, which the laws on a fake GPU
// (gpu_law_test.cpp) cannot show. It is skipped without a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/nccl/nccl.h"
#include "engine/cpu/cpu_device.h"
#include "engine/data/sets.h"
#include "engine/runtime/devices.h"
#include "models/registry.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace gpu_train_test {

using engine::DType;

class GpuTrain : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& device : devices_)
      if (device->id().kind == "cuda") gpus_.push_back(device.get());
    if (gpus_.empty()) GTEST_SKIP() << "there is no GPU";
  }
  static strategies::SynchronousOptions on(std::vector<engine::Device*> devices) {
    strategies::SynchronousOptions options = replicas(int(devices.size()));
    options.devices = std::move(devices);
    options.step.bucket_bytes = engine::kBlock * sizeof(float);
    return options;
  }
  static Job small(DType dtype) {
    Job job;
    job.dtype = dtype;
    job.steps = 8;
    return job;
  }
  // Expects similar weights after some steps: libraries sum in another order than the processor.
  void expect_alike(const Outcome& here, const Job& job, int count) {
    const Outcome there =
        train_mirrored(job, on(std::vector<engine::Device*>(std::size_t(count), processor_.get())));
    EXPECT_LT(relative(here.weights[0], there.weights[0]), 5e-3);
    for (const auto& mirror : here.weights) EXPECT_EQ(mirror, here.weights[0]) << "mirrors differ";
    EXPECT_NEAR(here.losses.back(), there.losses.back(), 1e-3 * std::abs(there.losses.back()));
  }

  // The devices do not use TF32, whose products have 10 bits.
  const std::vector<std::unique_ptr<engine::Device>> devices_ =
      engine::all_devices({.tf32 = false});
  const std::unique_ptr<engine::Device> processor_ = engine::cpu_device();
  std::vector<engine::Device*> gpus_;
};

TEST_F(GpuTrain, TwoReplicasOnAGpuTakeTheStepsOfThoseOnTheProcessor) {
  using namespace engine::optim;
  for (const Optimizer& optimizer :
       {sgd({.rate = 0.02, .momentum = 0.9}), adam({.rate = 0.002}), lars({.rate = 0.02}),
        sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = 0.01})}) {
    Job job = small(DType::kFloat32);
    job.optimizer = optimizer;
    job.batch_norm = true;
    job.dropout = 0.2;
    expect_alike(train_mirrored(job, on({gpus_[0], gpus_[0]})), job, 2);
  }
}

TEST_F(GpuTrain, TwoRunsGiveTheSameBits) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Job job = small(dtype);
    job.batch_norm = true;
    const Outcome one = train_mirrored(job, on({gpus_[0], gpus_[0], gpus_[0]}));
    const Outcome two = train_mirrored(job, on({gpus_[0], gpus_[0], gpus_[0]}));
    EXPECT_EQ(one.weights, two.weights);
    EXPECT_EQ(one.losses, two.losses);
    EXPECT_EQ(one.weights[0], one.weights[2]) << "mirrors differ";
  }
}

TEST_F(GpuTrain, RecordedStepsAreThoseThatAreQueued) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const int count : {1, 2, 4}) {
      SCOPED_TRACE(fmt::format("{}, {} replicas", engine::name(dtype), count));
      Job job = small(dtype);
      job.steps = 100;
      job.batch_norm = true;
      job.dropout = 0.2;
      job.accumulate = count == 2 ? 2 : 1;
      strategies::SynchronousOptions options =
          on(std::vector<engine::Device*>(std::size_t(count), gpus_[0]));
      options.step.graphs = strategies::Graphs::kOff;
      const Outcome queued = train_mirrored(job, options);
      options.step.graphs = strategies::Graphs::kOn;
      const Outcome recorded = train_mirrored(job, options);
      EXPECT_EQ(queued.repeated, 0);
      EXPECT_GT(recorded.repeated, 60);
      EXPECT_EQ(recorded.weights, queued.weights);
      EXPECT_EQ(recorded.losses, queued.losses);
    }
  }
}

TEST_F(GpuTrain, AllGpusTogetherTakeTheStepsOfTheProcessor) {
  const Job job = small(DType::kFloat32);
  for (engine::Device* from : gpus_)
    for (engine::Device* to : gpus_)
      if (!from->reach(*to)) GTEST_SKIP() << "not all GPUs reach each other";
  expect_alike(train_mirrored(job, on(gpus_)), job, int(gpus_.size()));
}

// The processes are threads of one process on one GPU, and messages go through host memory.
TEST_F(GpuTrain, SeveralProcessesTakeTheStepsOfTheProcessor) {
  const Job job = small(DType::kFloat32);
  expect_alike(train_collective(job, on({gpus_[0]}), {0, 0}, {1, 2}), job, 3);
}

TEST_F(GpuTrain, NcclAddsWhereEachProcessHasAGpu) {
  if (gpus_.size() < 2) GTEST_SKIP() << "there is one GPU";
  const Job job = small(DType::kFloat32);
  strategies::SynchronousOptions options = on({gpus_[0]});
  if (!collectives::nccl::available()) GTEST_SKIP() << "there is no NCCL";
  options.vendor = {collectives::nccl::version, collectives::nccl::open};
  options.step.algorithm = "nccl";
  expect_alike(train_collective(job, options, {0, 0}, {}, {gpus_[0], gpus_[1]}), job, 2);
}

// One GPU shows that the library starts, registers memory, and takes each call in stream order,
// flat and by hosts. With one rank every call leaves the data unchanged.
TEST_F(GpuTrain, NcclOfOneRankTakesEachCallAndChangesNothing) {
  if (!collectives::nccl::available()) GTEST_SKIP() << "there is no NCCL";
  constexpr std::size_t kCount = 5000;
  const auto ops = gpus_[0]->ops(DType::kFloat32, {});
  const auto alone = collectives::single_process();
  std::vector<float> numbers(kCount), back(kCount);
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  for (const bool hierarchical : {false, true}) {
    void* const stream = ops->reductions_queue();  // makes the GPU this thread's current one
    ASSERT_NE(stream, nullptr);
    const auto nccl = collectives::nccl::open(*alone, {.hierarchical = hierarchical});
    EXPECT_EQ(nccl->rank(), 0);
    EXPECT_EQ(nccl->ranks(), 1);
    const engine::Buffer data = ops->allocate(kCount * sizeof(float), "what is summed");
    ops->write(numbers.data(), data.data(), kCount * sizeof(float));
    ops->synchronize();
    nccl->add_memory(data.data(), data.bytes());
    nccl->all_reduce(data.data(), kCount, DType::kFloat32, stream);
    nccl->reduce_scatter(data.data(), kCount, DType::kFloat32, stream);
    nccl->all_gather(data.data(), kCount, DType::kFloat32, stream);
    nccl->broadcast(data.data(), kCount, DType::kFloat32, 0, stream);
    ops->record_event(0);
    nccl->wait([&] { return ops->is_done(0); });
    nccl->check();
    ops->read(data.data(), back.data(), kCount * sizeof(float));
    EXPECT_EQ(back, numbers) << (hierarchical ? "by hosts" : "flat");
    nccl->remove_memory(data.data());
  }
}

TEST_F(GpuTrain, WhatTouchesMemoryItselfRunsOnTheHostWhereThatIsAllowed) {
  Job job = small(DType::kFloat32);
  job.centre = job.norm = true;
  job.fallback = engine::Fallback::kCpu;
  const Outcome here = train_mirrored(job, on({gpus_[0], gpus_[0]}));
  EXPECT_EQ(here.history.fallbacks, 2);
  expect_alike(here, job, 2);
}

TEST_F(GpuTrain, DigitsAreLearntAsWellAsOnTheProcessor) {
  const engine::data::Sets digits = engine::data::generated_digits({.train = 2000, .test = 500});
  const auto accuracy = [&](engine::Device& device, DType dtype) {
    strategies::SynchronousOptions options = on({&device, &device});
    options.step.dtype = dtype;
    options.step.bucket_bytes = 0;
    strategies::Mirrored strategy(options);
    engine::Trainer trainer(strategy, models::build("mnist_cnn", {}),
                            engine::optim::sgd({.rate = 0.05, .momentum = 0.9}),
                            {.log = engine::Log("", engine::Log::Level::kError)});
    const engine::History history =
        trainer.fit(*digits.train, {.epochs = 3, .global_batch = 64, .test = digits.test.get()});
    EXPECT_EQ(weights(strategy, 0), weights(strategy, 1)) << "mirrors differ";
    return history.test->accuracy;
  };
  const double there = accuracy(*processor_, DType::kFloat32);
  EXPECT_GT(there, 0.9);
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    EXPECT_GT(accuracy(*gpus_[0], dtype), there - 0.02) << engine::name(dtype);
}

}  // namespace gpu_train_test
}  // namespace lockstep::test
