// SPDX-License-Identifier: MIT
// On a GPU the host is a step ahead: it queues a step before it reads the previous one's results.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/cpu/cpu_device.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace gpu_ahead_test {

using engine::Code;
using engine::DType;

constexpr int kClasses = 5;

// Has classes that can be learned. One number and the class of one example can be replaced.
class Classes : public Table {
 public:
  std::optional<std::uint64_t> changed = {};  // index of the example
  float input = 0, target = 0;                // its replaced values

  Classes() : Table(4000, 20, 1) {}
  void read(std::uint64_t index, std::span<float> in, std::span<float> out) const override {
    Table::read(index, in, out);
    out[0] = float(index % kClasses);
    if (index == changed) in[3] = input, out[0] = target;
  }
};

engine::GraphSpec graph() {
  engine::GraphSpec graph("small", {20});
  graph.then("dense1", engine::dense(64));
  graph.then("relu", engine::relu());
  graph.then("logits", engine::dense(kClasses));
  graph.set_loss(engine::softmax_cross_entropy());
  return graph;
}

struct Training {
  std::vector<engine::StepReport> reports;
  std::vector<double> weights;
  engine::History history;
};

const engine::optim::Optimizer kMomentum = engine::optim::sgd({.rate = 0.05, .momentum = 0.9});

// Trains on the examples in order, ten per step.
Training train(engine::Device& device, const Classes& data, engine::FitOptions fit, int count = 2,
               const engine::optim::Optimizer& optimizer = kMomentum) {
  strategies::SynchronousOptions options = replicas(count);
  options.devices.assign(std::size_t(count), &device);
  options.step.bucket_bytes = engine::kBlock * sizeof(float);
  options.step.dtype = DType::kFloat32;
  strategies::Mirrored strategy(options);
  engine::Trainer trainer(strategy, graph(), optimizer,
                          {.log = engine::Log("", engine::Log::Level::kError)});
  fit.global_batch = 10;
  fit.shuffle = false;
  fit.prefetch_threads = 0;
  Training run;
  const auto also = fit.on_step;
  fit.on_step = [&](const engine::StepReport& report) {
    run.reports.push_back(report);
    if (also) also(report);
  };
  run.history = trainer.fit(data, fit);
  run.weights = weights(strategy, 0);
  return run;
}

// Returns how often the GPU runs out of work during ten steps in the middle of a run.
int starved(int steps_ahead, int count, const engine::optim::Optimizer& optimizer = kMomentum) {
  std::atomic<int> times = 0;
  const auto gpu = engine::cuda::fake_device({.on_starved = [&] { ++times; }});
  int before = 0, after = 0;
  train(*gpu, Classes(),
        {.steps = 30,
         .steps_ahead = steps_ahead,
         .on_step =
             [&](const engine::StepReport& report) {
               if (report.step == 10) before = times;
               if (report.step == 20) after = times;
             }},
        count, optimizer);
  return after - before;
}

TEST(GpuAhead, TheGpuHasWorkAllTheTime) {
  EXPECT_EQ(starved(1, 1), 0);
  EXPECT_EQ(starved(1, 3), 0);
  EXPECT_GE(starved(0, 1), 10) << "nothing would be noticed";
}

// The device computes norms, so the host does not wait for them either.
TEST(GpuAhead, TheGpuHasWorkAllTheTimeWhereNormsMustBeKnown) {
  for (const engine::optim::Optimizer& optimizer :
       {engine::optim::sgd({.rate = 0.05, .momentum = 0.9, .clip_norm = 0.1}),
        engine::optim::lars({.rate = 0.05})})
    for (const int count : {1, 3}) EXPECT_EQ(starved(1, count, optimizer), 0) << count;
}

TEST(GpuAhead, TheSameBitsAndTheSameReports) {
  const auto gpu = engine::cuda::fake_device();
  for (const int accumulate : {1, 2}) {
    const Training at_once =
        train(*gpu, Classes(), {.steps = 12, .accumulate = accumulate, .steps_ahead = 0});
    const Training ahead =
        train(*gpu, Classes(), {.steps = 12, .accumulate = accumulate, .steps_ahead = 1});
    EXPECT_EQ(ahead.weights, at_once.weights);
    ASSERT_EQ(ahead.reports.size(), 12u);
    for (std::size_t i = 0; i < ahead.reports.size(); ++i) {
      EXPECT_EQ(ahead.reports[i].step, std::int64_t(i));
      EXPECT_EQ(ahead.reports[i].loss, at_once.reports[i].loss) << i;
      EXPECT_EQ(ahead.reports[i].accuracy, at_once.reports[i].accuracy) << i;
      EXPECT_EQ(ahead.reports[i].examples, 10u) << i;
      EXPECT_EQ(ahead.reports[i].rate, at_once.reports[i].rate) << i;
    }
  }
}

TEST(GpuAhead, AnInterruptedRunHasReportedAllThatItMade) {
  const auto gpu = engine::cuda::fake_device();
  std::atomic<int> interrupt = 0;
  const Training run = train(
      *gpu, Classes(), {.steps = 40, .interrupt = &interrupt, .on_step = [&](const auto& report) {
                          if (report.step == 5) interrupt = 15;
                        }});
  EXPECT_LT(run.history.steps, 12);
  EXPECT_GE(run.history.steps, 6);
  EXPECT_EQ(std::int64_t(run.reports.size()), run.history.steps);
  EXPECT_EQ(run.reports.back().step + 1, run.history.steps);
}

std::string error_of(engine::Device& device, const Classes& data, int steps_ahead) {
  try {
    train(device, data, {.steps = 12, .steps_ahead = steps_ahead});
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "nothing went wrong";
}

TEST(GpuAhead, AClassThatIsNoneIsNamedAsOnTheProcessor) {
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  for (const float wrong :
       {float(kClasses), -1.0f, 0.5f, std::numeric_limits<float>::quiet_NaN()}) {
    Classes data;
    data.changed = 44;  // in step 4
    Classes right;
    data.target = wrong;
    std::vector<float> in(20), out(1);
    right.read(44, in, out);
    data.input = in[3];
    const std::string there = error_of(*processor, data, 1);
    EXPECT_EQ(error_of(*gpu, data, 1), there);
    EXPECT_EQ(error_of(*gpu, data, 0), there);
  }
}

TEST(GpuAhead, ALossThatIsNotFiniteNamesItsStep) {
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  Classes data;
  data.changed = 44;
  data.input = std::numeric_limits<float>::infinity();
  data.target = 1;
  const std::string there = error_of(*processor, data, 1);
  EXPECT_NE(there.find("the loss is not finite at step 5, on rank 0: the input is not finite"),
            std::string::npos)
      << there;
  EXPECT_EQ(error_of(*gpu, data, 0), there);
  const std::string ahead = error_of(*gpu, data, 1);
  EXPECT_NE(ahead.find("the loss is not finite at step 5, on rank 0; the next step was queued"),
            std::string::npos)
      << ahead;
}

}  // namespace gpu_ahead_test
}  // namespace lockstep::test
