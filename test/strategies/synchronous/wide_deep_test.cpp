// SPDX-License-Identifier: MIT
// The model with embeddings trains on generated clicks, and all replicas hold the whole table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/cpu/cpu_device.h"
#include "engine/data/sets.h"
#include "engine/optim/optimizer.h"
#include "engine/train/trainer.h"
#include "models/wide_deep.h"
#include "strategies/synchronous/mirrored.h"
#include "test/strategies/inspection.h"

namespace lockstep::test {
namespace wide_deep_test {

constexpr std::size_t kBuckets = 100;

struct Training {
  std::vector<double> weights, losses;
};

Training train(int replicas, std::int64_t steps) {
  const auto device = engine::cpu_device();
  strategies::SynchronousOptions options;
  options.devices.assign(std::size_t(replicas), device.get());
  options.log = engine::Log("", engine::Log::Level::kError);
  strategies::Mirrored strategy(options);
  engine::TrainerOptions trainer_options;
  trainer_options.log = options.log;
  engine::Trainer trainer(strategy, models::wide_deep({.buckets = kBuckets}),
                          engine::optim::sgd({.rate = 0.05, .momentum = 0.9}), trainer_options);
  const engine::data::Sets clicks =
      engine::data::generated_clicks({.train = 100'000, .test = 0, .buckets = kBuckets});
  Training run;
  engine::FitOptions fit;
  fit.steps = steps;
  fit.global_batch = 100;
  fit.on_step = [&](const engine::StepReport& report) { run.losses.push_back(report.loss); };
  trainer.fit(*clicks.train, fit);
  run.weights = weights(strategy, 0);
  return run;
}

double mean(std::vector<double>::const_iterator begin, std::ptrdiff_t count) {
  return std::accumulate(begin, begin + count, 0.0) / double(count);
}

TEST(WideDeep, TwoReplicasHaveTheParametersOfOne) {
  const Training one = train(1, 5), two = train(2, 5);
  ASSERT_EQ(one.weights.size(), two.weights.size());
  double most = 0;
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    most = std::max(most, std::abs(one.weights[i] - two.weights[i]));
  }
  EXPECT_LT(most, 1e-6);
}

TEST(WideDeep, LearnsWhoClicks) {
  for (int replicas : {1, 2}) {
    const Training run = train(replicas, 800);
    ASSERT_EQ(run.losses.size(), 800u);
    const double first = mean(run.losses.begin(), 10), last = mean(run.losses.end() - 30, 30);
    EXPECT_GT(first, 0.6) << replicas;
    EXPECT_LT(last, 0.52) << replicas;
  }
}

}  // namespace wide_deep_test
}  // namespace lockstep::test
