// SPDX-License-Identifier: MIT
// Training with a loss scale: scales that change no bit, steps with gradients that are not finite,
// and the course of a dynamic scale. The tests use the processor's types; float16 is in
// gpu_loss_scale_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "engine/checkpoint/checkpoint.h"
#include "engine/cpu/cpu_device.h"
#include "strategies/synchronous/loss_scale.h"
#include "test/strategies/overflow.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace loss_scale_test {

using engine::DType;
using engine::LossScaling;
using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;
namespace optim = engine::optim;

const optim::Schedule kConstant{.kind = optim::Schedule::Kind::kConstant};
const optim::Optimizer kMomentum =
    optim::sgd({.rate = 0.02, .momentum = 0.9, .weight_decay = 1e-3, .schedule = kConstant});
const optim::Optimizer kAdam = optim::adam({.rate = 0.003, .schedule = kConstant});
const optim::Optimizer kClipped =
    optim::sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = 0.05, .schedule = kConstant});
const optim::Optimizer kLars = optim::lars({.rate = 0.5, .schedule = kConstant});
const optim::Optimizer kAll[] = {kMomentum, kAdam, kClipped, kLars};

LossScaling dynamic(double start, std::int64_t interval) {
  return {.dynamic = true, .start = start, .growth_interval = interval};
}

// Returns options for the reference device in float64, and for the processor in other types.
strategies::SynchronousOptions options_for(DType dtype, int count,
                                           std::optional<LossScaling> scaling,
                                           const std::string& update = "auto") {
  static const std::unique_ptr<engine::Device> cpu = engine::cpu_device();
  auto options = replicas(count);
  if (dtype != DType::kFloat64) options.devices.assign(std::size_t(count), cpu.get());
  options.step.loss_scale = scaling;
  options.step.update = strategies::update_of(update);
  return options;
}

class LossScale : public testing::Test {
 protected:
  LossScale() {
    std::string name = (fs::temp_directory_path() / "lockstep-scale-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~LossScale() override { fs::remove_all(folder_); }

  Job job(DType dtype, std::int64_t steps, const optim::Optimizer& optimizer,
          std::set<std::int64_t> overflows = {}) {
    Job job;
    job.dtype = dtype;
    job.steps = steps;
    job.optimizer = optimizer;
    job.loss = overflowing(std::move(overflows));
    return job;
  }
  std::string fresh_folder() { return folder_ + "/" + std::to_string(folders_++); }

  // Returns all arrays of a checkpoint except the scale, by name.
  std::map<std::string, std::vector<std::byte>> arrays(const std::string& folder,
                                                       std::int64_t step) {
    const auto storage = engine::posix_storage();
    engine::Checkpoints checkpoints(*storage, folder, 100, engine::Log());
    std::map<std::string, std::vector<std::byte>> all;
    for (const auto& array : checkpoints.arrays(step)) {
      if (array.name == strategies::LossScale::kArray) continue;
      const std::size_t elements = array.shape.elements();
      auto& bytes = all[array.name];
      bytes.resize(elements * engine::size_of(array.dtype));
      const engine::Piece piece{array.name, array.shape, array.dtype, {0, elements}, bytes.data()};
      checkpoints.restore(step, std::span(&piece, 1), {});
    }
    return all;
  }

  std::string folder_;
  int folders_ = 0;
};

// Powers of two are exact as long as nothing overflows or underflows.
TEST_F(LossScale, OfAPowerOfTwoChangesNoBit) {
  const std::pair<int, std::string> kWays[] = {{1, "auto"}, {3, "auto"}, {3, "separate"}};
  for (const DType dtype : {DType::kFloat64, DType::kFloat32})
    for (const optim::Optimizer& optimizer : kAll)
      for (const auto& [count, update] : kWays) {
        Job one = job(dtype, 5, optimizer);
        one.accumulate = count;
        const auto weights = [&](std::optional<LossScaling> scaling) {
          return train_mirrored(one, options_for(dtype, count, scaling, update)).weights;
        };
        SCOPED_TRACE(optimizer.describe() + " " + update);
        const auto plain = weights({});
        EXPECT_EQ(weights(LossScaling{.start = 0x1p-5}), plain);
        EXPECT_EQ(weights(dynamic(64, 2)), plain);
      }
}

// Other scales add one rounding.
TEST_F(LossScale, OfABatchIsRightToTheLastBits) {
  const Job one = job(DType::kFloat64, 10, kMomentum);
  const auto plain = train_mirrored(one, options_for(DType::kFloat64, 2, {})).weights[0];
  const auto scaled =
      train_mirrored(one, options_for(DType::kFloat64, 2, LossScaling{.start = 11})).weights[0];
  EXPECT_NE(plain, scaled);
  EXPECT_LT(relative(scaled, plain), 1e-14);
}

TEST_F(LossScale, AStepThatIsNotFiniteChangesNothing) {
  std::size_t run = 0;
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16})
    for (const optim::Optimizer& optimizer : kAll) {
      const int count = std::array{1, 2, 7}[run % 3];  // some of the seven own nothing
      const std::string update =
          (run + run / 4) % 2 == 0 ? "auto" : "separate";  // varies with each optimizer
      ++run;
      SCOPED_TRACE(optimizer.describe() + " " + update + " " + std::to_string(count));
      Job one = job(dtype, 6, optimizer, {3, 4});
      one.checkpoints = fresh_folder();
      one.every = 1;
      const Outcome outcome =
          train_mirrored(one, options_for(dtype, count, dynamic(512, 100), update));
      for (const auto& mirror : outcome.weights) ASSERT_EQ(mirror, outcome.weights[0]);
      EXPECT_EQ(outcome.history.skipped_steps, 2);
      EXPECT_EQ(outcome.history.loss_scale, 128);
      const auto of = [&](std::int64_t step) { return arrays(one.checkpoints, step); };
      EXPECT_EQ(of(5), of(4));
      EXPECT_NE(of(6), of(5));
    }
}

// All hosts skip the same steps, even if only one rank has the infinity.
TEST_F(LossScale, IsTheSameOnAllHosts) {
  for (const std::string algorithm : {"ring", "halving_doubling", "hierarchical"})
    for (const optim::Optimizer& optimizer : {kMomentum, kLars}) {
      auto options = options_for(DType::kFloat32, 2, dynamic(512, 4));
      options.step.algorithm = algorithm;
      const auto train = [&] {
        return train_collective(job(DType::kFloat32, 12, optimizer, {2, 7}), options, {0, 1});
      };
      const Outcome outcome = train(), again = train();
      for (const auto& mirror : outcome.weights) EXPECT_EQ(mirror, outcome.weights[0]);
      EXPECT_EQ(outcome.weights, again.weights);
      EXPECT_EQ(outcome.history.skipped_steps, 2);
      EXPECT_EQ(outcome.history.loss_scale, 256);
    }
}

TEST_F(LossScale, IsReportedOfEachStep) {
  for (const int count : {1, 3}) {
    Job one = job(DType::kFloat32, 10, kMomentum, {2, 7});
    std::vector<double> scales;
    std::vector<std::int64_t> skipped;
    one.on_step = [&](const engine::StepReport& report) {
      scales.push_back(report.loss_scale);
      skipped.push_back(report.skipped_steps);
    };
    const Outcome outcome = train_mirrored(one, options_for(DType::kFloat32, count, dynamic(8, 3)));
    EXPECT_THAT(scales, ElementsAre(8, 8, 8, 4, 4, 4, 8, 8, 4, 4));
    // Step 7 ends an epoch, so its skip is reported at once.
    EXPECT_THAT(skipped, ElementsAre(0, 0, 0, 1, 1, 1, 1, 2, 2, 2));
    EXPECT_EQ(outcome.history.skipped_steps, 2);
    EXPECT_EQ(outcome.losses.size(), 10u);
  }
  Job plain = job(DType::kFloat32, 2, kMomentum);
  EXPECT_EQ(train_mirrored(plain, options_for(DType::kFloat32, 1, {})).history.loss_scale, 0);
  EXPECT_EQ(train_mirrored(plain, options_for(DType::kFloat32, 1, LossScaling{.start = 4}))
                .history.loss_scale,
            4);
}

TEST_F(LossScale, SkipsOfTheLastStepAreCounted) {
  const Job one = job(DType::kFloat32, 5, kMomentum, {4});
  EXPECT_EQ(
      train_mirrored(one, options_for(DType::kFloat32, 2, dynamic(8, 3))).history.skipped_steps, 1);
}

// Adam's first update moves each weight by the rate, provided that it counts as the first.
TEST_F(LossScale, SkippedStepsAreNoStepsOfAdams) {
  const double rate = 0.01;
  const auto optimizer = optim::adam({.rate = rate, .epsilon = 1e-30, .schedule = kConstant});
  const auto train = [&](std::int64_t steps) {
    const Job one = job(DType::kFloat64, steps, optimizer, {0, 1, 2});
    return train_mirrored(one, options_for(DType::kFloat64, 1, dynamic(8, 100))).weights[0];
  };
  const auto before = train(3), after = train(4);
  std::size_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double step = std::abs(after[i] - before[i]);
    if (step == 0) continue;
    ++moved;
    ASSERT_NEAR(step, rate, 1e-12) << i;
  }
  EXPECT_GT(moved, before.size() / 2);
}

TEST_F(LossScale, ARunThatGoesOnHasTheSameBitsOverASkip) {
  const std::pair<DType, optim::Optimizer> kRuns[] = {{DType::kFloat32, kAdam},
                                                      {DType::kBFloat16, kLars}};
  for (const auto& [dtype, optimizer] : kRuns)
    for (const std::int64_t stop : {4, 5, 8}) {
      const auto options = options_for(dtype, 2, dynamic(256, 3));
      Job one = job(dtype, 14, optimizer, {1, 4, 9});
      const Outcome whole = train_mirrored(one, options);
      one.checkpoints = fresh_folder();
      one.steps = stop;
      one.loss = overflowing({1, 4, 9});
      train_mirrored(one, options);
      one.steps = 14;
      one.loss = overflowing({1, 4, 9});
      const Outcome rest = train_mirrored(one, options);
      EXPECT_EQ(rest.weights, whole.weights) << optimizer.describe() << " from " << stop;
      EXPECT_EQ(rest.history.loss_scale, whole.history.loss_scale);
      EXPECT_EQ(rest.history.skipped_steps, 3);
      // A run without a scale continues from there, and a dynamic scale after it starts anew.
      one.steps = 16;
      EXPECT_EQ(train_mirrored(one, options_for(dtype, 2, LossScaling())).history.skipped_steps, 0);
      one.steps = 18;
      one.loss = overflowing({});
      EXPECT_EQ(train_mirrored(one, options_for(dtype, 1, dynamic(32, 100))).history.loss_scale,
                32);
    }
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "nothing went wrong";
}

TEST_F(LossScale, ThatHelpsNothingEndsTheRun) {
  std::set<std::int64_t> all;
  for (std::int64_t step = 3; step < 80; ++step) all.insert(step);
  const auto run = [&](double start, int count) {
    return error_of([&] {
      train_mirrored(job(DType::kFloat32, 80, kMomentum, all),
                     options_for(DType::kFloat32, count, dynamic(start, 100)));
    });
  };
  for (const int count : {1, 3}) {
    EXPECT_THAT(run(1, count),
                HasSubstr("the gradients are not finite at step 18, as at the 14 steps before it, "
                          "and a loss scale of 3.05176e-05 does not help"));
    EXPECT_THAT(run(0x1p60, count), HasSubstr("not finite at step 53, as at the 49 steps before"));
  }
}

TEST_F(LossScale, ThatCannotBeIsRefused) {
  const auto refused = [&](const LossScaling& scaling) {
    return error_of([&] {
      train_mirrored(job(DType::kFloat32, 1, kMomentum), options_for(DType::kFloat32, 1, scaling));
    });
  };
  EXPECT_THAT(refused({.start = 0}), HasSubstr("a loss scale of 0: it must be from 2^-14 to 2^64"));
  EXPECT_THAT(refused({.start = -2}), HasSubstr("a loss scale of -2"));
  EXPECT_THAT(refused({.start = INFINITY}), HasSubstr("a loss scale of inf"));
  EXPECT_THAT(refused(dynamic(0x1p-20, 5)), HasSubstr("it must be from 2^-14 to 2^64"));
  EXPECT_THAT(refused(dynamic(1, 0)), HasSubstr("doubles every 0 steps"));
}

// A choice that changes bits is recorded in the checkpoint and used again unless another is
// requested.
TEST_F(LossScale, OfACheckpointIsUsedAgain) {
  for (const LossScaling& scaling : {LossScaling{.start = 3}, dynamic(48, 4)}) {
    Job one = job(DType::kFloat32, 14, kMomentum);
    const Outcome whole = train_mirrored(one, options_for(DType::kFloat32, 2, scaling));
    one.checkpoints = fresh_folder();
    one.steps = 7;
    train_mirrored(one, options_for(DType::kFloat32, 2, scaling));
    one.steps = 14;
    auto options = options_for(DType::kFloat32, 2, scaling);
    options.step.loss_scale.reset();
    const Outcome rest = train_mirrored(one, options);
    EXPECT_EQ(rest.weights, whole.weights);
    EXPECT_EQ(rest.history.loss_scale, whole.history.loss_scale);
  }
}

// The scale does not affect values that are not finite in forward.
TEST_F(LossScale, ALossThatIsNotFiniteEndsTheRunAsBefore) {
  Job one = job(DType::kFloat32, 200, optim::sgd({.rate = 1e39, .schedule = kConstant}));
  EXPECT_THAT(
      error_of([&] { train_mirrored(one, options_for(DType::kFloat32, 1, dynamic(8, 100))); }),
      HasSubstr("the loss is not finite at step"));
}

TEST(LossScaling, IsDynamicOfFloat16AndNoneOfTheOthers) {
  EXPECT_EQ(strategies::scaling_of({}, {}, DType::kFloat16), LossScaling::dynamically());
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16})
    EXPECT_EQ(strategies::scaling_of({}, {}, dtype), LossScaling());
  const LossScaling given{.start = 256}, before{.start = 8};
  EXPECT_EQ(strategies::scaling_of(given, before, DType::kFloat16), given);
  EXPECT_EQ(strategies::scaling_of({}, before, DType::kFloat16), before);
  EXPECT_EQ(LossScaling::dynamically().start, 65536);
  EXPECT_EQ(LossScaling::dynamically().growth_interval, 2000);
}

}  // namespace loss_scale_test
}  // namespace lockstep::test
