// SPDX-License-Identifier: MIT
// Batch norm over replicas. Synchronized, N replicas make the steps of one. Local, each replica
// keeps its own moving averages, and a reader gets their mean.
#include <gtest/gtest.h>

#include <unistd.h>
#include <cmath>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/data/sets.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "engine/train/trainer.h"
#include "models/resnet.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace batch_norm_test {

engine::GraphSpec small(bool synchronised) {
  engine::GraphSpec graph("small", {4, 5, 1});
  const engine::BatchNormOptions norm{.momentum = 0.8, .synchronised = synchronised};
  const auto from = graph.then("conv1", engine::convolution(4, 3, {.padding = 1}));
  auto main = graph.add("conv2", engine::convolution(4, 3, {.padding = 1, .bias = false}), from);
  main = graph.add("bn", engine::batch_norm(norm), main);
  main = graph.add("add", engine::add(), {main, from});
  graph.add("relu", engine::relu(), main);
  graph.then("dense", engine::dense(5));
  graph.then("bn_end", engine::batch_norm(norm));
  graph.set_loss(engine::mean_squared_error());
  return graph;
}

struct Result {
  std::vector<std::vector<double>> weights, statistics;  // one entry per replica
  double evaluated = 0;                                  // the loss
};

struct Options {
  int replicas = 1, accumulate = 1;
  std::int64_t steps = 10;
  std::string checkpoints = {};
};

Result train(const engine::GraphSpec& graph, const Options& options) {
  strategies::Mirrored strategy(replicas(options.replicas));
  engine::TrainerOptions trainer_options;
  trainer_options.log = engine::Log("", engine::Log::Level::kError);
  engine::Trainer trainer(strategy, graph, engine::optim::sgd({.rate = 0.05, .momentum = 0.9}),
                          trainer_options);
  const Table data = small_data();
  engine::FitOptions fit;
  fit.steps = options.steps;
  fit.global_batch = 11;
  fit.accumulate = options.accumulate;
  fit.prefetch_threads = 0;
  fit.checkpoints = options.checkpoints;
  trainer.fit(data, fit);
  Result result;
  result.evaluated = trainer.evaluate(data, 11).loss;
  result.weights.resize(std::size_t(options.replicas));
  result.statistics.resize(std::size_t(options.replicas));
  strategy.run([&](engine::Replica& r) {
    const std::span<double> all = r.graph.statistic_values();
    result.statistics[std::size_t(r.rank)].assign(all.begin(), all.end());
  });
  for (int i = 0; i < options.replicas; ++i) result.weights[std::size_t(i)] = weights(strategy, i);
  return result;
}

TEST(BatchNormOfReplicas, SynchronisedTheyMakeTheStepsOfOne) {
  const Result one = train(small(true), {});
  for (int replicas : {2, 3, 5}) {
    const Result many = train(small(true), {.replicas = replicas});
    for (int r = 0; r < replicas; ++r) {
      EXPECT_LT(difference(many.weights[std::size_t(r)], one.weights[0]), 1e-10) << replicas;
      EXPECT_LT(difference(many.statistics[std::size_t(r)], one.statistics[0]), 1e-10);
    }
    EXPECT_NEAR(many.evaluated, one.evaluated, 1e-10);
  }
}

TEST(BatchNormOfReplicas, LocalTheyDiffer) {
  const Result one = train(small(false), {});
  EXPECT_GT(difference(train(small(false), {.replicas = 2}).weights[0], one.weights[0]), 1e-6);
}

TEST(BatchNormOfReplicas, SynchronisedInMicroBatchesTheyMeetInEach) {
  const Result two = train(small(true), {.replicas = 2, .accumulate = 3});
  const Result mirror = train(small(true), {.replicas = 2, .accumulate = 3});
  EXPECT_EQ(two.weights, mirror.weights);
  EXPECT_EQ(two.weights[0], two.weights[1]);
  EXPECT_TRUE(std::isfinite(two.evaluated));
}

// Trains replicas with local statistics for four steps.
class LocalReplicas {
 public:
  explicit LocalReplicas(strategies::SynchronousOptions options)
      : count_(options.devices.size()),
        strategy_(std::move(options)),
        trainer_(strategy_, small(false), engine::optim::sgd({.rate = 0.05}),
                 {.log = engine::Log("", engine::Log::Level::kError)}) {
    engine::FitOptions fit;
    fit.steps = 4;
    fit.global_batch = 11;
    fit.prefetch_threads = 0;
    trainer_.fit(data_, fit);
  }
  void evaluate() { trainer_.evaluate(data_, 11); }
  std::vector<std::vector<double>> statistics() {
    std::vector<std::vector<double>> all(count_);
    strategy_.run([&](engine::Replica& r) {
      const std::span<double> mine = r.graph.statistic_values();
      all[std::size_t(r.rank)].assign(mine.begin(), mine.end());
    });
    return all;
  }

 private:
  const Table data_ = small_data();
  std::size_t count_;
  strategies::Mirrored strategy_;
  engine::Trainer trainer_;
};

// After an evaluation, every replica has the mean of all local averages.
TEST(BatchNormOfReplicas, LocalAveragesAreTheirMeanWhenTheyAreRead) {
  LocalReplicas three(replicas(3));
  const auto before = three.statistics();
  EXPECT_NE(before[0], before[1]);
  three.evaluate();
  const auto after = three.statistics();
  EXPECT_EQ(after[0], after[1]);
  EXPECT_EQ(after[0], after[2]);
  for (std::size_t i = 0; i < after[0].size(); ++i) {
    EXPECT_NEAR(after[0][i], (before[0][i] + before[1][i] + before[2][i]) / 3, 1e-14);
  }
}

// A replica without examples updates no averages and does not pull the mean toward their initial
// values.
TEST(BatchNormOfReplicas, WhoHasNoExamplesDoesNotCount) {
  strategies::SynchronousOptions options = replicas(2);
  options.shares = {1, 0};
  LocalReplicas alone(replicas(1)), beside(std::move(options));
  beside.evaluate();
  beside.evaluate();  // no updates since
  const auto both = beside.statistics();
  EXPECT_LT(difference(both[0], alone.statistics()[0]), 1e-12);
  EXPECT_EQ(both[1], both[0]);
}

TEST(BatchNormOfReplicas, CheckpointsHoldTheAverages) {
  const std::string folder = std::filesystem::temp_directory_path() /
                             ("lockstep_batch_norm_" + std::to_string(::getpid()));
  for (int replicas : {1, 2}) {
    for (bool synchronised : {false, true}) {
      std::filesystem::remove_all(folder);
      const Result whole =
          train(small(synchronised), {.replicas = replicas, .checkpoints = folder});
      // No steps are left to train, so the evaluation uses the restored state.
      const Result restored =
          train(small(synchronised), {.replicas = replicas, .checkpoints = folder});
      EXPECT_EQ(restored.weights, whole.weights);
      EXPECT_EQ(restored.statistics, whole.statistics);
      EXPECT_EQ(restored.evaluated, whole.evaluated);
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace batch_norm_test
}  // namespace lockstep::test
