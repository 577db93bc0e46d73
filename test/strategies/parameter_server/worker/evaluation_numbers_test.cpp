// SPDX-License-Identifier: MIT
// Evaluation under all three strategies: top-5 accuracy, the area under the curve (AUC) for two
// classes, and the loss of unsmoothed labels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "engine/train/area_under_curve.h"
#include "strategies/parameter_server/rpc/in_process.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "test/strategies/parameter_server/worker/mortal_servers.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace evaluation_numbers_test {

constexpr std::size_t kExamples = 39;

class Labels : public Table {
 public:
  explicit Labels(std::size_t classes) : Table(kExamples, 20, 1), classes_(classes) {}
  std::size_t classes() const override { return classes_; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    Table::read(index, input, target);
    target[0] = float(index * 7 % classes_);
  }

 private:
  std::size_t classes_;
};

engine::GraphSpec classifier(std::size_t classes, double smoothing = 0) {
  engine::GraphSpec graph("classifier", {20});
  graph.then("dense1", engine::dense(16));
  graph.then("relu", engine::relu());
  graph.then("dense2", engine::dense(classes));
  graph.set_loss(engine::softmax_cross_entropy({.smoothing = smoothing}));
  return graph;
}

// Computes the evaluation directly from all outputs.
engine::Evaluation by_hand(engine::Trainer& trainer, std::size_t classes) {
  engine::Evaluation result{0, 0, kExamples, 0};
  std::vector<engine::ScoredExample> scores;
  const engine::Evaluation said =
      trainer.predict(Labels(classes), 11, [&](std::int64_t example, std::span<const double> y) {
        const std::size_t wanted = std::size_t(example) * 7 % classes;
        double sum = 0;
        std::size_t before = 0;
        for (std::size_t c = 0; c < classes; ++c) {
          sum += std::exp(y[c]);
          before += y[c] > y[wanted] || (y[c] == y[wanted] && c < wanted);
        }
        result.loss += (std::log(sum) - y[wanted]) / double(kExamples);
        result.accuracy += double(before == 0) / double(kExamples);
        result.top5 += double(before < 5) / double(kExamples);
        scores.push_back({float(y[1] - y[0]), wanted == 1});
      });
  if (classes == 2) result.auc = engine::area_under_curve(scores);
  EXPECT_EQ(std::isnan(said.auc), classes != 2);
  EXPECT_EQ(std::isnan(said.top5), classes <= 5);
  return result;
}

void expect_evaluated(engine::Strategy& strategy, std::size_t classes, double smoothing) {
  engine::TrainerOptions options;
  options.log = engine::Log("", engine::Log::Level::kError);
  engine::Trainer trainer(strategy, classifier(classes, smoothing),
                          engine::optim::sgd({.rate = 0.1}), options);
  engine::FitOptions fit;
  fit.steps = 6;
  fit.global_batch = 11;
  fit.prefetch_threads = 0;
  trainer.fit(Labels(classes), fit);
  const engine::Evaluation found = trainer.evaluate(Labels(classes), 11);
  EXPECT_EQ(found.examples, kExamples);
  if (strategy.membership().local < strategy.membership().size) return;  // it sees only its part
  const engine::Evaluation expected = by_hand(trainer, classes);
  EXPECT_NEAR(found.loss, expected.loss, 1e-12);
  EXPECT_NEAR(found.accuracy, expected.accuracy, 1e-12);
  EXPECT_EQ(std::isnan(found.auc), classes != 2);
  if (classes == 2) {
    EXPECT_NEAR(found.auc, expected.auc, 1e-12);
  }
  if (classes > 5) {
    EXPECT_NEAR(found.top5, expected.top5, 1e-12);
    EXPECT_GT(found.top5, found.accuracy);
    EXPECT_LT(found.top5, 1);
  } else {
    EXPECT_TRUE(std::isnan(found.top5));
  }
}

// Returns what each process reports: the AUC for two classes, else the top-5 accuracy.
std::vector<double> told_by_processes(const std::vector<int>& host, std::size_t classes) {
  const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
  std::vector<double> told(host.size());
  std::vector<std::thread> processes;
  for (std::size_t p = 0; p < host.size(); ++p)
    processes.emplace_back([&, p] {
      strategies::CollectiveAllReduce strategy(replicas(2), *bootstraps[p]);
      engine::Trainer trainer(strategy, classifier(classes), engine::optim::sgd());
      const engine::Evaluation found = trainer.evaluate(Labels(classes), 11);
      told[p] = classes == 2 ? found.auc : found.top5;
      bootstraps[p]->finish();
    });
  for (std::thread& process : processes) process.join();
  return told;
}

TEST(EvaluationNumbers, IsWhatAPlainLookSaysUnderMirrored) {
  for (const int count : {1, 3})
    for (const std::size_t classes : {2, 5, 6, 12})
      for (const double smoothing : {0.0, 0.3}) {
        strategies::Mirrored strategy(replicas(count));
        expect_evaluated(strategy, classes, smoothing);
      }
}

TEST(EvaluationNumbers, IsWhatAPlainLookSaysWithParameterServers) {
  const auto device = engine::reference_device();
  for (const std::size_t classes : {2, 5, 12})
    for (const double smoothing : {0.0, 0.3}) {
      MortalServers servers(2, *device, engine::DType::kFloat64);
      strategies::ParameterServerOptions options;
      options.updates.warm_up = 0;
      options.devices.assign(2, device.get());
      options.servers = 2;
      options.connect = [&](std::size_t server) { return servers.connect(server); };
      options.log = engine::Log("", engine::Log::Level::kError);
      strategies::ParameterServer strategy(options);
      expect_evaluated(strategy, classes, smoothing);
    }
}

TEST(EvaluationNumbers, OfProcessesIsThatOfOneInAllOfThem) {
  for (const std::size_t classes : {2, 12}) {
    strategies::Mirrored strategy(replicas(1));
    engine::Trainer trainer(strategy, classifier(classes), engine::optim::sgd());
    const engine::Evaluation alone = trainer.evaluate(Labels(classes), 11);
    const double one = classes == 2 ? alone.auc : alone.top5;
    EXPECT_GT(one, 0);
    EXPECT_LT(one, 1);
    for (const std::vector<int>& host : {std::vector<int>{0, 0}, {0, 1}})
      for (const double told : told_by_processes(host, classes)) EXPECT_EQ(told, one);
  }
}

// A model trains on smoothed labels and reports the loss that it minimizes.
TEST(Smoothing, IsInTheLossOfTrainingAlone) {
  const auto first_loss = [](double smoothing) {
    strategies::Mirrored strategy(replicas(2));
    engine::Trainer trainer(strategy, classifier(12, smoothing), engine::optim::sgd());
    engine::FitOptions fit;
    fit.steps = 1;
    fit.global_batch = kExamples;
    double loss = 0;
    fit.on_step = [&](const engine::StepReport& report) { loss = report.loss; };
    const engine::Evaluation before = trainer.evaluate(Labels(12), kExamples);
    trainer.fit(Labels(12), fit);
    return std::pair(loss, before.loss);
  };
  const auto [plain, plain_test] = first_loss(0);
  const auto [smoothed, smoothed_test] = first_loss(0.3);
  EXPECT_NEAR(plain, plain_test, 1e-12);
  EXPECT_EQ(smoothed_test, plain_test);
  EXPECT_GT(std::abs(smoothed - plain), 1e-3);
}

}  // namespace evaluation_numbers_test
}  // namespace lockstep::test
