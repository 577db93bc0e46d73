// SPDX-License-Identifier: MIT
// Reporting steps together does not change them.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace executions_test {

struct Training {
  std::vector<engine::StepReport> reports;
  std::vector<double> weights;
  engine::History history;
};

Training train(engine::FitOptions fit, int count = 2) {
  strategies::Mirrored strategy(replicas(count));
  engine::Trainer trainer(strategy, small_graph({}),
                          engine::optim::sgd({.rate = 0.02, .momentum = 0.9}),
                          {.log = engine::Log("", engine::Log::Level::kError)});
  const Table data(1100, 20, 5);  // 100 steps
  fit.global_batch = 11;
  fit.prefetch_threads = 0;
  Training training;
  const auto also = fit.on_step;
  fit.on_step = [&](const engine::StepReport& report) {
    training.reports.push_back(report);
    if (also) also(report);
  };
  training.history = trainer.fit(data, fit);
  training.weights = weights(strategy, 0);
  return training;
}

TEST(Executions, ChangeNoStepAndAreReportedOnce) {
  const Training each = train({.steps = 100});
  ASSERT_EQ(each.reports.size(), 100u);
  for (const std::int64_t k : {1, 7, 10, 100, 1000}) {
    SCOPED_TRACE(k);
    const Training run = train({.steps = 100, .steps_per_execution = k});
    EXPECT_EQ(run.weights, each.weights);
    EXPECT_EQ(run.history.steps, 100);
    ASSERT_EQ(std::int64_t(run.reports.size()), (100 + k - 1) / k);
    std::int64_t first = 0;
    for (const engine::StepReport& report : run.reports) {
      const std::int64_t last = std::min<std::int64_t>(first + k, 100) - 1;
      EXPECT_EQ(report.step, last);
      EXPECT_EQ(report.rate, each.reports[std::size_t(last)].rate);
      EXPECT_EQ(report.examples, std::size_t(last + 1 - first) * 11);
      double loss = 0;
      for (std::int64_t step = first; step <= last; ++step)
        loss += each.reports[std::size_t(step)].loss;
      EXPECT_NEAR(report.loss, loss / double(last + 1 - first), 1e-12);
      EXPECT_GT(report.examples_per_second, 0);
      first = last + 1;
    }
  }
}

// An execution ends with its epoch, which has 100 steps, and with a checkpoint.
TEST(Executions, EndWithEpochsAndCheckpoints) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "executions";
  std::filesystem::remove_all(folder);
  const Training run =
      train({.steps = 130, .checkpoints = folder.string(), .every = 50, .steps_per_execution = 40});
  std::filesystem::remove_all(folder);
  std::vector<std::int64_t> last;
  for (const engine::StepReport& report : run.reports) last.push_back(report.step + 1);
  EXPECT_EQ(last, (std::vector<std::int64_t>{40, 50, 90, 100, 130}));
}

TEST(Executions, AnInterruptIsHeardAtTheirEnds) {
  std::atomic<int> interrupt = 0;
  const Training run = train(
      {.steps = 100, .steps_per_execution = 5, .interrupt = &interrupt, .on_step = [&](auto&) {
         interrupt = 15;
       }});
  EXPECT_EQ(run.history.steps % 5, 0);
  EXPECT_LE(run.history.steps, 20);
  EXPECT_EQ(run.reports.back().step + 1, run.history.steps);
}

TEST(Executions, TimesAreOfAStep) {
  const Training run = train({.steps = 100, .steps_per_execution = 20});
  ASSERT_TRUE(run.history.times);
  ASSERT_EQ(run.history.times->ranks.size(), 2u);
  EXPECT_LT(run.history.times->ranks[0].step, run.history.seconds / 50);
}

TEST(Executions, OfNoStepsAreRefused) {
  EXPECT_THROW(train({.steps = 1, .steps_per_execution = 0}), engine::Error);
}

}  // namespace executions_test
}  // namespace lockstep::test
