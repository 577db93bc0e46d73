// SPDX-License-Identifier: MIT
// Training in bfloat16, with weights and gradients of 16 bits and master weights in float32. The
// tests cover the laws, the use of master weights, and that checkpoints contain only float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "engine/checkpoint/checkpoint.h"
#include "engine/cpu/cpu_device.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace masters_test {

using engine::BFloat16;
using engine::DType;
using testing::HasSubstr;

namespace fs = std::filesystem;
namespace optim = engine::optim;
using Numbers = std::vector<double>;

Numbers minus(const Numbers& a, const Numbers& b) {
  Numbers result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

Numbers rounded(Numbers numbers) {
  for (double& number : numbers) number = double(BFloat16(number));
  return numbers;
}

strategies::SynchronousOptions replicas(int count, const std::string& update,
                                        const std::string& algorithm = "auto") {
  auto options = test::replicas(count);
  options.step.update = strategies::update_of(update);
  options.step.algorithm = algorithm;
  return options;
}

class Masters : public testing::Test {
 protected:
  Masters() {
    std::string name = (fs::temp_directory_path() / "lockstep-masters-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Masters() override { fs::remove_all(folder_); }

  Job job(std::int64_t steps, const optim::Optimizer& optimizer) {
    Job job;
    job.dtype = DType::kBFloat16;
    job.steps = steps;
    job.optimizer = optimizer;
    job.checkpoints = folder_ + "/" + std::to_string(runs_++);
    return job;
  }

  // Returns the weights of a run in `dtype` after restoring the newest checkpoint; said_ has its
  // log.
  Numbers restored(const std::string& checkpoints, DType dtype, int count = 1) {
    auto options = test::replicas(count);
    options.step.dtype = dtype;
    said_.clear();
    options.log = engine::Log("", engine::Log::Level::kInfo,
                              [this](auto, std::string_view line) { said_ += line; });
    strategies::Mirrored strategy(options);
    engine::Trainer trainer(strategy, small_graph({}), optim::sgd(), {.log = options.log});
    trainer.restore(checkpoints);
    return weights(strategy, 0);
  }
  // Returns a run's master weights in the order of the arena, which a run in float32 starts with.
  Numbers masters(const Job& job) { return restored(job.checkpoints, DType::kFloat32); }
  // Returns the initial weights of all runs.
  Numbers start() {
    const Job still = job(1, optim::sgd({.rate = 0}));
    train_mirrored(still, test::replicas(1));
    return masters(still);
  }

  std::string folder_, said_;
  int runs_ = 0;
};

// A schedule that does not depend on the number of steps.
const optim::Schedule kConstant{.kind = optim::Schedule::Kind::kConstant};
const optim::Optimizer kMomentum =
    optim::sgd({.rate = 0.02, .momentum = 0.9, .schedule = kConstant});

TEST_F(Masters, StartAsFloat32AndWeightsAreTheirRounding) {
  Job exact = job(1, optim::sgd({.rate = 0}));
  exact.dtype = DType::kFloat32;
  const Outcome float32 = train_mirrored(exact, test::replicas(1));
  EXPECT_EQ(start(), float32.weights[0]);
  for (const std::string update : {"fused", "separate"}) {
    const Job still = job(1, optim::sgd({.rate = 0}));
    const Outcome outcome = train_mirrored(still, replicas(3, update));
    EXPECT_EQ(masters(still), float32.weights[0]) << update;
    EXPECT_EQ(outcome.weights[2], rounded(float32.weights[0])) << update;
  }
}

// Two replicas round gradients twice as often as one, each time to 8 bits. With a separate update
// their sums are rounded, too. The relative error of one step's change is below 2^-7.
TEST_F(Masters, OfReplicasTogetherChangeAsThoseOfOneUpToTheRoundingOfGradients) {
  const Numbers before = start();
  const optim::Optimizer plain = optim::sgd({.rate = 0.1});
  Job exact = job(1, plain);
  exact.dtype = DType::kFloat32;
  const Numbers wanted = minus(train_mirrored(exact, test::replicas(1)).weights[0], before);
  const auto change = [&](int count, const std::string& update) {
    const Job one = job(1, plain);
    train_mirrored(one, replicas(count, update));
    return minus(masters(one), before);
  };
  const Numbers one = change(1, "fused");
  EXPECT_LT(relative(one, wanted), 0x1p-6);  // activations and their gradients are rounded, too
  for (const int count : {2, 4})
    for (const std::string update : {"fused", "separate"})
      EXPECT_LT(relative(change(count, update), one), 0x1p-7) << count << " " << update;
}

struct Way {
  std::vector<int> host;  // host of each process; empty: Mirrored
  int count;              // replicas per process
  std::string algorithm, update;
};

TEST_F(Masters, OfMirrorsStayEqualByAnyAlgorithmFusedAndSeparate) {
  const auto cpu = engine::cpu_device();
  const auto reference = test::replicas(1).devices[0];
  const optim::Optimizer optimizers[] = {kMomentum,
                                         optim::adam({.rate = 0.003, .weight_decay = 1e-3})};
  std::size_t turn = 0;
  for (engine::Device* device : {cpu.get(), reference}) {
    ++turn;  // each way runs both optimizers, one per device
    for (const Way& way : std::vector<Way>{{{}, 3, "direct", "fused"},
                                           {{}, 3, "direct", "separate"},
                                           {{}, 6, "direct", "fused"},
                                           {{}, 2, "ring", "fused"},
                                           {{}, 3, "ring", "separate"},
                                           {{}, 4, "halving_doubling", "separate"},
                                           {{0, 0, 1}, 1, "ring", "fused"},
                                           {{0, 1, 2}, 1, "halving_doubling", "separate"},
                                           {{0, 1}, 2, "hierarchical", "fused"},
                                           {{0, 1}, 2, "hierarchical", "separate"}}) {
      const optim::Optimizer& optimizer = optimizers[turn++ % 2];
      auto options = replicas(way.count, way.update, way.algorithm);
      options.devices.assign(options.devices.size(), device);
      const Job one = job(12, optimizer);
      const Outcome outcome = way.host.empty() ? train_mirrored(one, options)
                                               : train_collective(one, options, way.host);
      for (const Numbers& weights : outcome.weights) EXPECT_EQ(weights, outcome.weights[0]);
      EXPECT_EQ(outcome.weights[0], rounded(masters(one)))
          << way.algorithm << " " << way.update << " " << optimizer.describe();
      EXPECT_LT(outcome.losses.back(), outcome.losses.front());
    }
  }
}

// A separate update sees rounded sums of gradients. A fused update does not, unless a norm must be
// known first; then both have the same bits.
TEST_F(Masters, OfAClippedNormHaveTheSameBitsFusedAndSeparate) {
  const auto train = [&](const optim::Optimizer& optimizer, const std::string& update) {
    const Job one = job(10, optimizer);
    const Outcome outcome = train_mirrored(one, replicas(3, update));
    EXPECT_EQ(outcome.weights[1], outcome.weights[0]);
    return masters(one);
  };
  const auto clipped = optim::sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = 0.05});
  EXPECT_EQ(train(clipped, "fused"), train(clipped, "separate"));
  const Numbers fused = train(kMomentum, "fused"), separate = train(kMomentum, "separate");
  EXPECT_NE(fused, separate);
  const Numbers before = start();
  EXPECT_LT(relative(minus(separate, before), minus(fused, before)), 0x1p-6);
  EXPECT_GT(relative(train(clipped, "fused"), fused), 1e-3);  // clipping had an effect
}

// Each of 100 steps is a small part of the distance between two bfloat16 numbers.
TEST_F(Masters, KeepStepsThatBfloat16Loses) {
  const optim::Optimizer slow = optim::sgd({.rate = 2e-4});
  const Numbers before = start();
  Job exact = job(100, slow);
  exact.dtype = DType::kFloat32;
  const Numbers wanted = minus(train_mirrored(exact, test::replicas(2)).weights[0], before);
  double steps_lost = 0;
  for (std::size_t i = 0; i < before.size(); ++i)
    steps_lost += std::abs(wanted[i]) / 100 < std::abs(before[i]) * 0x1p-10;
  EXPECT_GT(steps_lost, 0.9 * double(before.size()));
  for (const std::string update : {"fused", "separate"}) {
    const Job one = job(100, slow);
    const Outcome outcome = train_mirrored(one, replicas(2, update));
    EXPECT_LT(relative(minus(masters(one), before), wanted), 0.05) << update;
    EXPECT_NE(outcome.weights[0], rounded(before)) << update;
  }
}

TEST_F(Masters, StandInCheckpointsUnderTheParametersNamesAndNothingInBfloat16) {
  const auto storage = engine::posix_storage();
  const auto arrays = [&](const Job& job) {
    engine::Checkpoints checkpoints(*storage, job.checkpoints, 1, engine::Log());
    std::set<std::string> found;
    for (const auto& array : checkpoints.arrays(job.steps)) {
      EXPECT_EQ(array.dtype, DType::kFloat32) << array.name;
      found.insert(array.name + " " + to_string(array.shape));
    }
    EXPECT_THAT(checkpoints.read_state(job.steps).plan,
                HasSubstr(fmt::format("\"dtype\":\"{}\"", engine::name(job.dtype))));
    return found;
  };
  Job exact = job(2, kMomentum);
  exact.dtype = DType::kFloat32;
  train_mirrored(exact, test::replicas(2));
  for (const std::string update : {"fused", "separate"}) {
    const Job one = job(2, kMomentum);
    train_mirrored(one, replicas(2, update));
    EXPECT_EQ(arrays(one), arrays(exact)) << update;
  }
}

TEST_F(Masters, OfFrozenWeightsThereAreNoneAndCheckpointsHoldThemWidened) {
  engine::GraphSpec graph = small_graph({});
  graph.freeze("dense1");
  const auto storage = engine::posix_storage();
  const auto fit = [&](DType dtype, std::int64_t steps) {
    auto options = test::replicas(2);
    options.step.dtype = dtype;
    strategies::Mirrored strategy(options);
    engine::Trainer trainer(strategy, graph, kMomentum, {.log = options.log});
    trainer.fit(small_data(),
                {.steps = steps, .global_batch = 11, .checkpoints = folder_ + "/frozen"});
    return weights(strategy, 1);
  };
  const Numbers narrow = fit(DType::kBFloat16, 3);
  engine::Checkpoints checkpoints(*storage, folder_ + "/frozen", 1, engine::Log());
  for (const auto& array : checkpoints.arrays(3)) EXPECT_EQ(array.dtype, DType::kFloat32);
  const Numbers wide = fit(DType::kFloat32, 4);
  std::size_t same = 0;
  for (std::size_t i = 0; i < wide.size(); ++i) same += wide[i] == narrow[i];
  EXPECT_GE(same, 20u * 64 + 64);  // the frozen weights
}

TEST_F(Masters, GoOnInFloat32AndTheOtherWayRoundWithAnotherSlicing) {
  Job exact = job(6, kMomentum);
  exact.dtype = DType::kFloat32;
  const Outcome float32 = train_mirrored(exact, test::replicas(2));
  EXPECT_EQ(restored(exact.checkpoints, DType::kBFloat16, 3), rounded(float32.weights[0]));
  EXPECT_THAT(said_, HasSubstr("was written by a run in float32, this one is in bfloat16"));

  Job narrow = exact;
  narrow.dtype = DType::kBFloat16, narrow.steps = 12;
  const Outcome bfloat16 = train_mirrored(narrow, replicas(3, "fused"));
  EXPECT_EQ(bfloat16.losses.size(), 6u);
  const Numbers there = masters(narrow);
  EXPECT_THAT(said_, HasSubstr("was written by a run in bfloat16, this one is in float32"));
  EXPECT_EQ(rounded(there), bfloat16.weights[0]);
  EXPECT_NE(there, bfloat16.weights[0]);  // master weights are more precise

  Job wide = exact;
  wide.steps = 18;
  const Outcome again = train_mirrored(wide, replicas(2, "separate"));
  Job undisturbed = job(18, kMomentum);
  undisturbed.dtype = DType::kFloat32;
  const Numbers all = train_mirrored(undisturbed, test::replicas(2)).weights[0], before = start();
  EXPECT_LT(relative(minus(again.weights[0], before), minus(all, before)), 0x1p-6);
}

TEST_F(Masters, OfARunThatGoesOnHaveTheBitsOfAnUndisturbedOne) {
  for (const std::string update : {"fused", "separate"})
    for (const optim::Optimizer& optimizer :
         {kMomentum, optim::adam({.rate = 0.003, .schedule = kConstant})}) {
      const Job whole = job(14, optimizer);
      const Outcome outcome = train_mirrored(whole, replicas(3, update));
      Job parts = job(5, optimizer);
      train_mirrored(parts, replicas(3, update));
      parts.steps = 14;
      EXPECT_EQ(train_mirrored(parts, replicas(3, update)).weights, outcome.weights) << update;
      EXPECT_EQ(masters(parts), masters(whole)) << update;
    }
}

}  // namespace masters_test
}  // namespace lockstep::test
