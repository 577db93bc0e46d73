// SPDX-License-Identifier: MIT
// Replicas on a GPU train like those on the processor. The GPU is a fake one that runs its streams
// as late as possible and in an odd order. A read before a wait returns old numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "engine/cpu/cpu_device.h"
#include "engine/data/sets.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace gpu_law_test {

using engine::DType;

strategies::SynchronousOptions on(engine::Device& device, int count) {
  strategies::SynchronousOptions options = replicas(count);
  options.devices.assign(std::size_t(count), &device);
  options.step.bucket_bytes = engine::kBlock * sizeof(float);
  return options;
}

strategies::SynchronousOptions on(engine::cuda::FakeDevices& gpus, std::vector<std::size_t> which) {
  strategies::SynchronousOptions options = on(gpus[0], int(which.size()));
  for (std::size_t i = 0; i < which.size(); ++i) options.devices[i] = &gpus[which[i]];
  return options;
}

Job small(DType dtype) {
  Job job;
  job.dtype = dtype;
  job.steps = 8;
  return job;
}

struct Case {
  const char* name;
  engine::optim::Optimizer optimizer;
  int accumulate = 1;
  double dropout = 0;
  bool batch_norm = false;
};

const Case kCases[] = {
    {"sgd", engine::optim::sgd({.rate = 0.02, .momentum = 0.9})},
    {"adam in micro-batches", engine::optim::adam({.rate = 0.002}), 2},
    {"decay of weights alone",
     engine::optim::sgd({.rate = 0.02, .momentum = 0.9, .weight_decay = 0.1})},
    {"lars", engine::optim::lars({.rate = 0.02})},
    {"dropout", engine::optim::sgd({.rate = 0.02}), 1, 0.3},
    {"batch norm over all replicas", engine::optim::sgd({.rate = 0.02}), 1, 0, true},
    {"clipped", engine::optim::sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = 0.01})},
};

Job job_of(const Case& c) {
  Job job = small(DType::kFloat32);
  job.optimizer = c.optimizer;
  job.accumulate = c.accumulate;
  job.dropout = c.dropout;
  job.batch_norm = c.batch_norm;
  return job;
}

TEST(GpuLaw, ReplicasOnAGpuTakeTheStepsOfThoseOnTheProcessor) {
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Job job = job_of(c);
    const Outcome there = train_mirrored(job, on(*processor, 2));
    const Outcome here = train_mirrored(job, on(*gpu, 2));
    EXPECT_LT(relative(here.weights[0], there.weights[0]), 1e-5);
    EXPECT_EQ(here.weights[0], here.weights[1]) << "mirrors differ";
    ASSERT_EQ(here.losses.size(), there.losses.size());
    for (std::size_t i = 0; i < here.losses.size(); ++i)
      EXPECT_NEAR(here.losses[i], there.losses[i], 1e-5 * std::abs(there.losses[i]));
  }
}

TEST(GpuLaw, TwoRunsGiveTheSameBitsInEveryOrderOfStreams) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::vector<std::vector<double>> weights;
    for (std::uint64_t seed : {1, 2}) {
      const auto gpu = engine::cuda::fake_device({.seed = seed});
      weights.push_back(train_mirrored(small(dtype), on(*gpu, 3)).weights[0]);
    }
    EXPECT_EQ(weights[0], weights[1]);
  }
}

// Sums and updates have one order, so the assignment of replicas to GPUs does not matter. On one
// GPU they have the bits of the processor (ReduceKernels).
TEST(GpuLaw, SeveralGpusEndWithTheBitsOfOne) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const engine::optim::Optimizer& optimizer :
         {engine::optim::adam({.rate = 0.002}), engine::optim::lars({.rate = 0.02})}) {
      Job job = small(dtype);
      job.steps = 5;
      job.optimizer = optimizer;
      const auto train = [&](const std::vector<std::size_t>& which, std::uint64_t seed) {
        engine::cuda::FakeDevices gpus({.gpus = 2, .seed = seed});
        return train_mirrored(job, on(gpus, which));
      };
      for (const std::vector<std::size_t>& which :
           {std::vector<std::size_t>{0, 1}, {1, 0}, {0, 0, 1}}) {
        SCOPED_TRACE(fmt::format("{} on {}", engine::name(dtype), fmt::join(which, ",")));
        const Outcome here = train(which, 2);
        const Outcome there = train(std::vector<std::size_t>(which.size(), 0), 1);
        for (const std::vector<double>& weights : here.weights)
          EXPECT_EQ(weights, there.weights[0]);
        EXPECT_EQ(here.losses, there.losses);
      }
    }
  }
}

TEST(GpuLaw, SeveralGpusTakeTheStepsOfTheProcessor) {
  const auto processor = engine::cpu_device();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    engine::cuda::FakeDevices gpus({.gpus = 2});
    Job job = job_of(c);
    job.steps = 5;
    const Outcome here = train_mirrored(job, on(gpus, {0, 0, 1}));
    const Outcome there = train_mirrored(job, on(*processor, 3));
    EXPECT_LT(relative(here.weights[0], there.weights[0]), 1e-5);
    for (const std::vector<double>& mirror : here.weights) EXPECT_EQ(mirror, here.weights[0]);
  }
}

// The law holds for every algorithm that the planner may choose; each has an order of its own.
TEST(GpuLaw, EveryAlgorithmWorksOverSeveralGpus) {
  Job job = small(DType::kFloat32);
  job.steps = 3;
  const std::pair<const char*, const char*> kinds[] = {
      {"direct", "fused"},      {"ring", "fused"},    {"hierarchical", "fused"},
      {"one_shot", "separate"}, {"ring", "separate"}, {"halving_doubling", "separate"}};
  for (const auto& [algorithm, update] : kinds) {
    SCOPED_TRACE(fmt::format("{} {}", algorithm, update));
    const auto train = [&, a = algorithm, u = update](const std::vector<std::size_t>& which) {
      engine::cuda::FakeDevices gpus({.gpus = 2});
      strategies::SynchronousOptions options = on(gpus, which);
      options.step.algorithm = a;
      options.step.update = strategies::update_of(u);
      return train_mirrored(job, options);
    };
    const Outcome here = train({0, 1, 1}), there = train({0, 0, 0});
    for (const std::vector<double>& weights : here.weights) EXPECT_EQ(weights, there.weights[0]);
  }
}

// Processes do not reach each other's GPUs, so their messages go through host memory. The law holds
// on one host and on two, on one GPU or one per process, and with equal or different numbers of
// replicas.
TEST(GpuLaw, ProcessesWithOneAndThreeReplicasTakeTheStepsOfOneReplicaOnTheProcessor) {
  const auto processor = engine::cpu_device();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Job job = job_of(c);
    const Outcome there = train_mirrored(job, on(*processor, 1));
    for (const std::vector<int>& host : {std::vector<int>{0, 0}, {0, 1}}) {
      if (host[1] == 1 && &c != &kCases[0]) continue;  // the plan is the same
      engine::cuda::FakeDevices gpus({.gpus = 2});
      const Outcome here =
          train_collective(job, on(gpus[0], 1), host, {1, 3}, {&gpus[0], &gpus[host[1]]});
      EXPECT_LT(relative(here.weights[0], there.weights[0]), 1e-5);
      for (const std::vector<double>& mirror : here.weights) EXPECT_EQ(mirror, here.weights[0]);
      ASSERT_EQ(here.losses.size(), there.losses.size());
      for (std::size_t i = 0; i < here.losses.size(); ++i)
        EXPECT_NEAR(here.losses[i], there.losses[i], 1e-5 * std::abs(there.losses[i]));
    }
  }
}

TEST(GpuLaw, SeveralProcessesGiveTheSameBitsInEveryOrderOfStreams) {
  const std::pair<const char*, const char*> kinds[] = {{"ring", "fused"},
                                                       {"hierarchical", "fused"},
                                                       {"ring", "separate"},
                                                       {"halving_doubling", "separate"}};
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const auto& [algorithm, update] : kinds) {
      if (dtype == DType::kBFloat16 && std::string_view(algorithm) != kinds[0].first) continue;
      SCOPED_TRACE(fmt::format("{} {} {}", engine::name(dtype), algorithm, update));
      std::vector<std::vector<double>> weights;
      for (std::uint64_t seed : {1, 2}) {
        engine::cuda::FakeDevices gpus({.gpus = 2, .seed = seed});
        strategies::SynchronousOptions options = on(gpus[0], 2);
        options.step.algorithm = algorithm;
        options.step.update = strategies::update_of(update);
        options.communication_thread = seed == 2;
        const Outcome here =
            train_collective(small(dtype), options, {0, 0}, {}, {&gpus[0], &gpus[1]});
        for (const std::vector<double>& mirror : here.weights) EXPECT_EQ(mirror, here.weights[0]);
        weights.push_back(here.weights[0]);
      }
      EXPECT_EQ(weights[0], weights[1]);
    }
  }
}

// The device converts gradients to the wire type before anything is sent.
TEST(GpuLaw, GradientsTravelInSixteenBitsWhereAsked) {
  engine::cuda::FakeDevices gpus({.gpus = 2});
  const auto processor = engine::cpu_device();
  strategies::SynchronousOptions here = on(gpus[0], 1), there = on(*processor, 1);
  here.step.wire = there.step.wire = engine::DType::kBFloat16;
  const Job job = small(DType::kFloat32);
  const Outcome gpu = train_collective(job, here, {0, 1}, {}, {&gpus[0], &gpus[1]});
  const Outcome cpu = train_collective(job, there, {0, 1});
  EXPECT_LT(relative(gpu.weights[0], cpu.weights[0]), 1e-5);
  EXPECT_GT(relative(gpu.weights[0], train_mirrored(job, on(*processor, 2)).weights[0]), 1e-6);
}

TEST(GpuLaw, ProcessesOnTheHostAndOnAGpuDoNotMix) {
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  try {
    train_collective(small(DType::kFloat32), on(*gpu, 1), {0, 0}, {}, {gpu.get(), processor.get()});
    ADD_FAILURE() << "it trained";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    EXPECT_NE(std::string(error.what()).find("memory of replicas: the host's"), std::string::npos)
        << error.what();
  }
}

TEST(GpuLaw, PlansAreThoseForTheLinksOfTheGpus) {
  engine::cuda::FakeDevices gpus({.gpus = 2});
  strategies::SynchronousOptions options = on(gpus, {0, 1});
  options.step.dtype = DType::kFloat32;
  options.gpus = {
      .gpus = {{.index = 0, .memory_bandwidth = 3e12}, {.index = 1, .memory_bandwidth = 3e12}},
      .pairs = {{.a = 0,
                 .b = 1,
                 .link = engine::GpuLink::kNvlink,
                 .links = 12,
                 .generation = 3,
                 .reach = true}}};
  strategies::Mirrored strategy(options);
  Outcome outcome;
  train(strategy, small(DType::kFloat32), &outcome);
  EXPECT_EQ(strategy.topology().hosts[0].costs.direct(2)[1], 300e9);
  EXPECT_NE(strategy.explain().find(
                "costs of ranks and links: assumed, as links of such GPUs are specified, and not "
                "measured (lockstep plan with these devices measures and keeps them): NVLink 3, 12 "
                "links: "
                "cuda 0-1"),
            std::string::npos)
      << strategy.explain();
  options.devices[1] = options.devices[0];
  EXPECT_EQ(strategies::Mirrored(options).topology().hosts[0].costs, collectives::HostCosts());
}

TEST(GpuLaw, ARunThatGoesOnFromACheckpointEndsWithTheSameBits) {
  const auto gpu = engine::cuda::fake_device();
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Job part = small(dtype);
    part.optimizer.schedule.kind = engine::optim::Schedule::Kind::kConstant;
    const Outcome whole = train_mirrored(part, on(*gpu, 2));
    const std::filesystem::path folder =
        std::filesystem::path(testing::TempDir()) / fmt::format("gpu_law_{}", engine::name(dtype));
    std::filesystem::remove_all(folder);
    part.checkpoints = folder.string();
    part.every = 4;
    part.steps = 4;
    train_mirrored(part, on(*gpu, 2));
    part.steps = 8;
    const Outcome rest = train_mirrored(part, on(*gpu, 2));
    EXPECT_EQ(rest.losses.size(), 4u) << "it did not go on";
    EXPECT_EQ(rest.weights, whole.weights);
    std::filesystem::remove_all(folder);
  }
}

// Computes half the mean squared error by loops over its operands.
class OwnLoss final : public engine::Loss {
 public:
  std::string describe() const override { return "own_loss"; }
  std::size_t target_columns(const engine::Shape& output) const override {
    return output.elements();
  }
  void evaluate(engine::Context& context, engine::Tensor y, engine::Tensor target,
                engine::Tensor dy, engine::Tensor losses, engine::Tensor) const override {
    const std::size_t columns = y.columns();
    for (std::size_t row = 0; row < std::size_t(context.state->examples); ++row) {
      double sum = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
        const float off = y.as<float>()[i] - target.as<float>()[i];
        sum += double(off) * off / (2.0 * double(columns));
        if (dy)
          dy.as<float>()[i] =
              float(double(off) / double(columns) * context.state->inverse_examples);
      }
      losses.as<double>()[row] = sum;
    }
  }
};

// Returns a job with three custom parts: a layer that sums over replicas in both directions, a
// layer with weights, and a loss.
Job own_parts() {
  Job job = small(DType::kFloat32);
  job.centre = job.norm = true;
  job.loss = std::make_shared<OwnLoss>();
  job.accumulate = 2;
  return job;
}

TEST(GpuLaw, WhatTouchesMemoryItselfRunsOnTheHostWhereThatIsAllowed) {
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  Job job = own_parts();
  const Outcome there = train_mirrored(job, on(*processor, 2));
  EXPECT_EQ(there.history.fallbacks, 0);
  std::string said;
  job.log = engine::Log("", engine::Log::Level::kInfo,
                        [&](auto, std::string_view line) { (said += line) += '\n'; });
  job.fallback = engine::Fallback::kCpu;
  const Outcome here = train_mirrored(job, on(*gpu, 2));
  EXPECT_LT(relative(here.weights[0], there.weights[0]), 1e-5);
  EXPECT_EQ(here.weights[0], here.weights[1]) << "mirrors differ";
  EXPECT_EQ(here.history.fallbacks, 3);
  const auto told = said.find("these layers run on the host");
  ASSERT_NE(told, std::string::npos) << said;
  EXPECT_NE(said.find("centre, norm, the loss", told), std::string::npos) << said;
  EXPECT_EQ(said.find("these layers run on the host", told + 1), std::string::npos) << "told twice";
}

TEST(GpuLaw, WhatTouchesMemoryItselfIsElseRefusedByName) {
  const auto gpu = engine::cuda::fake_device();
  const auto refusal = [&](const Job& job) -> std::string {
    try {
      train_mirrored(job, on(*gpu, 2));
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      return error.what();
    }
    return "none";
  };
  Job job = own_parts();
  EXPECT_NE(refusal(job).find("layer centre (centre) has no kernels for float32 on cuda:0"),
            std::string::npos)
      << refusal(job);
  job.centre = job.norm = false;
  EXPECT_NE(refusal(job).find("the loss (own_loss) has no kernels for float32 on cuda:0"),
            std::string::npos)
      << refusal(job);
  job = small(DType::kInt32);
  EXPECT_NE(refusal(job).find("cuda:0 has no kernels for int32"), std::string::npos)
      << refusal(job);
}

// Training, evaluations with top-5 accuracy, and the prediction for each example agree.
TEST(GpuLaw, DigitsAreLearntAndToldApartAsOnTheProcessor) {
  const engine::data::Sets digits = engine::data::generated_digits({.train = 120, .test = 90});
  engine::GraphSpec graph("small", {28, 28, 1});
  graph.then("hidden", engine::dense(24));
  graph.then("relu", engine::relu());
  graph.then("logits", engine::dense(10));
  graph.set_loss(engine::softmax_cross_entropy());
  struct Found {
    engine::Evaluation test;
    std::map<std::int64_t, std::vector<double>> outputs;
  };
  const auto learn = [&](engine::Device& device) {
    strategies::SynchronousOptions options = on(device, 2);
    options.step.dtype = DType::kFloat32;
    strategies::Mirrored strategy(options);
    engine::Trainer trainer(strategy, graph, engine::optim::sgd({.rate = 0.05, .momentum = 0.9}),
                            {.log = engine::Log("", engine::Log::Level::kError)});
    Found found;
    found.test = trainer
                     .fit(*digits.train, {.epochs = 40,
                                          .global_batch = 24,
                                          .test = digits.train.get(),
                                          .evaluate_every = 10})
                     .test.value();
    trainer.predict(*digits.test, 36, [&](std::int64_t example, std::span<const double> output) {
      found.outputs[example].assign(output.begin(), output.end());
    });
    return found;
  };
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  const Found here = learn(*gpu), there = learn(*processor);
  EXPECT_GT(there.test.accuracy, 0.5) << "nothing was learnt";
  EXPECT_NEAR(here.test.loss, there.test.loss, 1e-4);
  EXPECT_NEAR(here.test.accuracy, there.test.accuracy, 1.5 / 120);
  EXPECT_NEAR(here.test.top5, there.test.top5, 1.5 / 120);
  ASSERT_EQ(here.outputs.size(), 90u);
  for (const auto& [example, output] : here.outputs)
    EXPECT_LT(difference(output, there.outputs.at(example)), 1e-3) << example;
}

TEST(GpuLaw, TooLittleMemoryIsAnErrorThatNamesWhatWasToLieThere) {
  const auto gpu = engine::cuda::fake_device({.memory = 64 << 10});
  try {
    train_mirrored(small(DType::kFloat32), on(*gpu, 2));
    ADD_FAILURE() << "it trained";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kMemory);
    const std::string text = error.what();
    EXPECT_NE(text.find("cuda:0: no memory for "), std::string::npos) << text;
  }
}

// Returns the text of the error that a job ends with before its first step.
std::string refusal(const strategies::SynchronousOptions& options) {
  try {
    train_mirrored(small(DType::kFloat32), options);
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "none";
}

TEST(GpuLaw, WhatReplicasOnAGpuCannotDoIsRefused) {
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  strategies::SynchronousOptions kinds = on(*gpu, 2);
  kinds.devices[1] = processor.get();
  EXPECT_NE(refusal(kinds).find("cuda:0 and cpu:0 do not reach"), std::string::npos);
  std::swap(kinds.devices[0], kinds.devices[1]);
  EXPECT_NE(refusal(kinds).find("devices of one kind"), std::string::npos);
  EXPECT_NE(refusal(on(*gpu, 65)).find("at most 64"), std::string::npos);
  strategies::SynchronousOptions limited = on(*gpu, 2);
  limited.memory_limit = std::size_t(1) << 30;
  EXPECT_NE(refusal(limited).find("give a fraction, or bytes, of its memory"), std::string::npos);
  strategies::SynchronousOptions direct = on(*gpu, 2);
  direct.step.kernels = engine::Kernels::kDirect;
  EXPECT_NE(refusal(direct).find("no choice of kernels"), std::string::npos);
  direct.step.kernels = engine::Kernels::kAuto;  // the program's default
  EXPECT_EQ(refusal(direct), "none");
}

TEST(GpuLaw, GpusThatDoNotReachEachOtherAreNamed) {
  for (const std::pair<int, int>& apart : {std::pair(1, 2), std::pair(2, 1)}) {
    engine::cuda::FakeDevices gpus({.gpus = 3, .apart = {apart}});
    const std::string text = refusal(on(gpus, {0, 1, 2}));
    EXPECT_EQ(text, fmt::format("replicas on cuda:{} and cuda:{} do not reach each other's memory: "
                                "give devices that do (lockstep doctor tells), or one device for "
                                "all of them, such as cuda:0",
                                apart.first, apart.second));
    EXPECT_EQ(train_mirrored(small(DType::kFloat32), on(gpus, {0, 1})).losses.size(), 8u);
  }
}

}  // namespace gpu_law_test
}  // namespace lockstep::test
