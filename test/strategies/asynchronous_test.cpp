// SPDX-License-Identifier: MIT
// The port and the loop also support an asynchronous strategy.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "test/strategies/asynchronous_strategy.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace asynchronous_test {

Job slow_job() {
  Job job;
  job.steps = 200;
  job.optimizer = engine::optim::sgd({.rate = 0.01, .momentum = 0.5});
  return job;
}

TEST(Asynchronous, OneWorkerLearnsThroughTheSameLoop) {
  const auto device = engine::reference_device();
  AsynchronousStrategy strategy(1, *device);
  Outcome outcome;
  train(strategy, slow_job(), &outcome);
  ASSERT_EQ(outcome.losses.size(), 200u);
  EXPECT_LT(outcome.losses.back(), 0.9 * outcome.losses.front());
  for (double stale : strategy.staleness) EXPECT_EQ(stale, 0);
}

TEST(Asynchronous, ThreeWorkersShareTheStepsAndPullStaleWeights) {
  const auto device = engine::reference_device();
  AsynchronousStrategy strategy(3, *device);
  Job job = slow_job();
  Outcome outcome;
  const engine::History history = train(strategy, job, &outcome);
  EXPECT_EQ(history.steps, 200);
  EXPECT_EQ(std::accumulate(strategy.steps_of_worker.begin(), strategy.steps_of_worker.end(), 0),
            200);
  ASSERT_EQ(strategy.staleness.size(), 200u);
  const double stale = std::accumulate(strategy.staleness.begin(), strategy.staleness.end(), 0.0);
  EXPECT_GT(stale, 0) << "three workers never met a version newer than their own";
  EXPECT_LT(stale / 200, 10);
}

// Sets the inputs from column 8 on to zero, so that most rows of the first layer have no gradient.
class SparseTable : public Table {
 public:
  SparseTable() : Table(39, 2048, 5) {}
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    Table::read(index, input, target);
    std::fill(input.begin() + 8, input.end(), 0.0f);
  }
};

TEST(Asynchronous, PushesOfAFewRowsOnly) {
  const auto device = engine::reference_device();
  AsynchronousStrategy strategy(2, *device);
  engine::GraphSpec graph("sparse", {2048});
  graph.then("dense1", engine::dense(4));
  graph.then("dense2", engine::dense(5));
  graph.set_loss(engine::mean_squared_error());
  engine::Trainer trainer(strategy, graph, engine::optim::sgd({.rate = 0.01}));
  const SparseTable data;
  engine::FitOptions fit;
  fit.steps = 20;
  fit.global_batch = 11;
  trainer.fit(data, fit);
  EXPECT_GT(strategy.rows_pushed, 0u);
  EXPECT_LT(strategy.rows_pushed, strategy.rows_seen * 3 / 4);
}

// The first worker reports about every third step, and the rate of all three. With a rate of its
// own steps, all steps would take longer than the run.
TEST(Asynchronous, TheRateOfAReportCountsTheStepsOfOthers) {
  const auto device = engine::reference_device();
  AsynchronousStrategy strategy(3, *device);
  const Table data(39, 64, 5);
  engine::GraphSpec graph("small", {64});
  graph.then("dense", engine::dense(5));
  graph.set_loss(engine::mean_squared_error());
  engine::Trainer trainer(strategy, graph, engine::optim::sgd({.rate = 0.01}));
  double seconds = 0, examples = 0;
  std::int64_t last = -1;
  engine::Clock::time_point begin;
  engine::FitOptions fit{.steps = 600, .global_batch = 13};
  fit.on_open = [&](auto...) { begin = engine::Clock::now(); };
  fit.on_step = [&](const engine::StepReport& report) {
    if (last >= 0 && report.step > last)
      seconds += 13.0 * double(report.step - last) / report.examples_per_second;
    last = report.step;
  };
  fit.on_epoch = [&](const engine::EpochReport& report) { examples += double(report.examples); };
  trainer.fit(data, fit);
  EXPECT_LE(seconds, engine::seconds_since(begin));
  EXPECT_LT(examples, 0.8 * 600 * 13);  // those of one worker
}

TEST(Asynchronous, RefusesALayerThatSumsOverReplicasByName) {
  const auto device = engine::reference_device();
  AsynchronousStrategy strategy(2, *device);
  Job job;
  job.centre = true;
  try {
    train(strategy, job, nullptr);
    FAIL() << "it was accepted";
  } catch (const engine::Error& error) {
    EXPECT_NE(std::string(error.what()).find("centre.forward"), std::string::npos) << error.what();
  }
}

}  // namespace asynchronous_test
}  // namespace lockstep::test
