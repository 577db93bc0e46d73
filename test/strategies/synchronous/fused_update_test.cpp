// SPDX-License-Identifier: MIT
// An update inside the all-reduce has the same bits as a separate one and less state per rank. Its
// order suits the phase that waits for it.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/cpu/cpu_device.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace fused_update_test {

TEST(Updates, FusedAndSeparateGiveTheSameBitsForAnyBucketSize) {
  for (double clip : {0.0, 0.05}) {
    Job job;
    job.centre = true;
    job.optimizer = engine::optim::sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = clip});
    for (int count : {1, 2, 3, 4}) {
      auto options = replicas(count);
      options.step.update = strategies::Update::kSeparate;
      const Outcome separate = train_mirrored(job, options);
      for (std::size_t bucket : {std::size_t(1), std::size_t(20000), std::size_t(1) << 30}) {
        auto fused = replicas(count);
        fused.step.update = strategies::Update::kFused;
        fused.step.bucket_bytes = bucket;
        const Outcome outcome = train_mirrored(job, fused);
        EXPECT_EQ(outcome.weights, separate.weights) << count << " replicas, bucket " << bucket;
        if (count > 1 && bucket == 1) {
          EXPECT_LT(outcome.owned, separate.owned);
        }
      }
      auto late = replicas(count);
      late.step.overlap = false;
      EXPECT_EQ(train_mirrored(job, late).weights, separate.weights) << "without overlap";
    }
  }
}

// The law also holds for the optimized kernels, with sums in registers and in memory.
TEST(Updates, FusedAndSeparateGiveTheSameBitsInFloat32OnTheCpu) {
  const auto device = engine::cpu_device();
  for (const engine::optim::Optimizer& optimizer :
       {engine::optim::sgd({.rate = 0.02, .momentum = 0.9}), engine::optim::adam({.rate = 0.003}),
        engine::optim::adamw({.rate = 0.003, .clip_norm = 0.05})}) {
    Job job;
    job.dtype = engine::DType::kFloat32;
    job.optimizer = optimizer;
    for (const int count : {2, 5}) {
      auto options = replicas(count);
      options.devices.assign(std::size_t(count), device.get());
      options.step.update = strategies::Update::kSeparate;
      const Outcome separate = train_mirrored(job, options);
      options.step.update = strategies::Update::kFused;
      const Outcome fused = train_mirrored(job, options);
      EXPECT_EQ(fused.weights, separate.weights) << optimizer.describe() << ", " << count;
      EXPECT_LT(fused.owned, separate.owned);
    }
  }
}

TEST(Updates, FusedAndSeparateGiveTheSameBitsBetweenHosts) {
  Job job;
  job.optimizer = engine::optim::adam({.rate = 0.003});
  for (const std::string algorithm :
       {"ring", "hierarchical", "leader_hierarchical", "ring:..16k,hierarchical:16k.."})
    for (const std::vector<int>& host : {std::vector<int>{0, 1}, {0, 0, 1}, {0, 1, 1, 0}}) {
      auto options = replicas(1);
      options.step.algorithm = algorithm;
      options.step.bucket_bytes = 20000;
      options.step.update = strategies::Update::kSeparate;
      const Outcome separate = train_collective(job, options, host);
      options.step.update = strategies::Update::kFused;
      const Outcome fused = train_collective(job, options, host);
      EXPECT_EQ(fused.weights, separate.weights)
          << algorithm << ", " << host.size() << " processes";
      EXPECT_LT(fused.owned, separate.owned);
    }
}

// Executors run plans in order. Updates without a norm follow backward, last layer first. Updates
// that wait for a norm follow the next forward pass, first layer first.
TEST(Updates, ThatWaitForANormComeInTheOrderOfForward) {
  for (const std::string update : {"fused", "separate"})
    for (const double clip : {0.0, 0.05}) {
      Job job;
      job.optimizer = engine::optim::sgd({.momentum = 0.9, .clip_norm = clip});
      auto options = replicas(2);
      options.step.update = strategies::update_of(update);
      options.step.bucket_bytes = 1;
      strategies::Mirrored strategy(options);
      strategy.open(small_graph(job), job.optimizer.rule, {11, 1, 1, {}});
      std::vector<int> updates = strategy.step().stages.updates;
      ASSERT_GT(updates.size(), 1u);
      if (clip > 0) std::reverse(updates.begin(), updates.end());
      EXPECT_TRUE(std::is_sorted(updates.begin(), updates.end())) << update << ", clip " << clip;
      EXPECT_EQ(verify(strategy), "");
    }
}

}  // namespace fused_update_test
}  // namespace lockstep::test
