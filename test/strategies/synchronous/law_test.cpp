// SPDX-License-Identifier: MIT
// Laws 1 to 3 of synchronous training, for both strategies: equal work, equal mirrors, equal order.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <thread>

#include "engine/cpu/cpu_device.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "engine/train/staging.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace law_test {

struct Way {
  std::string name;
  int replicas;           // total
  std::vector<int> host;  // host of each process; empty: Mirrored
  std::vector<std::uint64_t> shares;
  std::string algorithm = "auto", update = "auto";
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

Outcome train_by(const Job& job, const Way& way) {
  const int processes = way.host.empty() ? 1 : int(way.host.size());
  auto options = replicas(way.replicas / processes);
  options.shares = way.shares;
  options.step.algorithm = way.algorithm;
  options.step.update = strategies::update_of(way.update);
  return way.host.empty() ? train_mirrored(job, options) : train_collective(job, options, way.host);
}

std::vector<Way> ways() {
  std::vector<Way> list;
  for (int n : {1, 2, 3, 4}) {
    list.push_back({"mirrored " + std::to_string(n), n, {}, {}});
    list.push_back({"mirrored separate " + std::to_string(n), n, {}, {}, "auto", "separate"});
    list.push_back({"mirrored ring " + std::to_string(n), n, {}, {}, "ring"});
    std::vector<int> one_host(std::size_t(n), 0);
    list.push_back({"processes " + std::to_string(n), n, one_host, {}});
  }
  list.push_back({"mirrored uneven", 3, {}, {5, 2, 4}});
  list.push_back({"mirrored with an empty replica", 3, {}, {3, 0, 2}});
  list.push_back({"first replica empty, ring", 2, {}, {0, 1}, "ring"});
  list.push_back({"mirrored, more replicas than a batch has examples", 13, {}, {}});
  list.push_back({"2 processes of 2", 4, {0, 0}, {}});
  list.push_back({"2 hosts", 2, {0, 1}, {}});
  list.push_back({"2 hosts of 2", 4, {0, 1}, {}});
  list.push_back({"3 hosts, an empty replica", 3, {0, 1, 2}, {2, 0, 3}});
  list.push_back({"unequal hosts", 3, {0, 0, 1}, {}});
  list.push_back({"2 hosts of 2, separate", 4, {0, 1}, {}, "ring", "separate"});
  list.push_back({"2 hosts of 2, halving", 4, {0, 1}, {}, "halving_doubling"});
  list.push_back({"2 hosts of 2, hierarchical", 4, {0, 1}, {}, "hierarchical"});
  list.push_back({"3 hosts, hierarchical halving", 3, {0, 1, 2}, {}, "hierarchical_halving"});
  list.push_back({"unequal hosts, hierarchical", 4, {0, 0, 1, 0}, {}, "hierarchical"});
  list.push_back({"mirrored by size", 3, {}, {}, "direct:..8k,ring:8k.."});
  list.push_back({"mirrored by size, separate", 3, {}, {}, "one_shot:..8k,direct:8k.."});
  list.push_back({"2 hosts of 2, by size", 4, {0, 1}, {}, "ring:..8k,hierarchical:8k.."});
  list.push_back({"unequal hosts, by size, separate",
                  3,
                  {0, 0, 1},
                  {},
                  "halving_doubling:..8k,leader_hierarchical:8k.."});
  list.push_back({"unequal hosts, leaders", 3, {0, 0, 1}, {}, "leader_hierarchical"});
  return list;
}

class Laws : public testing::TestWithParam<Way> {};

TEST_P(Laws, ReplicasTogetherMakeTheStepsOfOneAndStayBitwiseEqual) {
  namespace optim = engine::optim;
  for (bool centre : {false, true}) {
    for (const optim::Optimizer& optimizer :
         {optim::sgd({.rate = 0.02, .momentum = 0.9}), optim::adam({.rate = 0.003}),
          optim::sgd({.rate = 0.02,
          .momentum = 0.9,
          .nesterov = true,
          .weight_decay = 1e-3,
          .clip_norm = 0.05})}) {
      Job job;
      job.centre = centre;
      job.dropout = 0.2;
      job.optimizer = optimizer;
      const Outcome one = train_mirrored(job, replicas(1));
      const Outcome many = train_by(job, GetParam());
      ASSERT_EQ(many.weights.size(), std::size_t(GetParam().replicas));
      EXPECT_LT(difference(one.weights[0], many.weights[0]), 1e-10) << optimizer.describe();
      for (const auto& weights : many.weights) {
        EXPECT_EQ(weights, many.weights[0]) << optimizer.describe();
      }
      ASSERT_EQ(one.losses.size(), 20u);
      ASSERT_EQ(many.losses.size(), 20u);
      EXPECT_LT(difference(one.losses, many.losses), 1e-10);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllWays, Laws, testing::ValuesIn(ways()), [](const auto& tested) {
  std::string name = tested.param.name;
  for (char& c : name) {
    if (!std::isalnum(c)) c = '_';
  }
  return name;
});

TEST(Law1, BrokenAMeanOfMeansIsNoticed) {
  // Shares of 5 : 2 : 4 are weighted as if they were equal, as a mean over replicas would do.
  const Outcome one = train_mirrored({}, replicas(1));
  strategies::Mirrored strategy([] {
    auto options = replicas(3);
    options.shares = {5, 2, 4};
    options.hook = {};
    return options;
  }());
  class Unweighted : public Table {
   public:
    Unweighted() : Table(39, 20, 5) {}
  };
  const Unweighted data;
  const Job job;
  strategy.open(small_graph(job), job.optimizer.rule, {11, 1, 1, {}});
  strategy.assign({39, 11, 0, 20, {}, true});
  strategy.run([&](engine::Replica& r) {
    engine::Pipeline pipeline(data, {.seed = 1, .in_place = true});
    while (const auto work = strategy.next(r)) {
      pipeline.request(work->epoch, work->local_batch);
      const engine::Batch& batch = pipeline.take();
      // The weight is (1 / 3) (1 / local batch) instead of 1 / global batch.
      engine::stage(r, batch, work->step, std::max<std::size_t>(1, 3 * batch.rows()),
                    job.optimizer.schedule.rate(job.optimizer.rate, work->step, 20));
      r.graph.forward(*r.context, [&](engine::Range x) { strategy.before_forward(r, x); });
      r.graph.evaluate_loss(*r.context, true);
      r.graph.backward(*r.context, false, [&](engine::Range x) { strategy.gradient_ready(r, x); });
      strategy.finish(r);
    }
  });
  EXPECT_GT(difference(one.weights[0], weights(strategy, 0)), 1e-6);
}

TEST(Law1, Float32OnTheCpuAgreesInOneStepToOneInAHundredThousand) {
  const auto device = engine::cpu_device();
  Job job;
  job.steps = 1;
  job.dtype = engine::DType::kFloat32;
  auto with = [&](int count) {
    auto options = replicas(count);
    options.devices.assign(std::size_t(count), device.get());
    return options;
  };
  // The test compares the change of the parameters, because the parameters are much larger.
  const auto start = [&](int count) {
    Job nothing = job;
    nothing.optimizer.rate = 0;
    return train_mirrored(nothing, with(count)).weights[0];
  };
  const std::vector<double> before = start(1);
  auto change = [&](const std::vector<double>& after) {
    std::vector<double> delta(after.size());
    for (std::size_t i = 0; i < after.size(); ++i) delta[i] = after[i] - before[i];
    return delta;
  };
  const std::vector<double> one = change(train_mirrored(job, with(1)).weights[0]);
  for (int count : {2, 3, 4}) {
    EXPECT_LT(relative(change(train_mirrored(job, with(count)).weights[0]), one), 1e-5) << count;
  }
  const Outcome processes = train_collective(job, with(2), {0, 0});
  EXPECT_LT(relative(change(processes.weights[0]), one), 1e-5);
}

TEST(Law1, ProcessesMayHaveUnequalNumbersOfReplicas) {
  const Outcome one = train_mirrored({}, replicas(1));
  for (std::vector<int> host : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    const Outcome four = train_collective({}, replicas(1), host, {1, 3});
    ASSERT_EQ(four.weights.size(), 4u);
    EXPECT_LT(difference(one.weights[0], four.weights[0]), 1e-10);
    for (const auto& weights : four.weights) EXPECT_EQ(weights, four.weights[0]);
  }
}

// Has classes as targets instead of numbers.
class Classes : public Table {
 public:
  Classes() : Table(39, 20, 1) {}
  std::size_t classes() const override { return 5; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    Table::read(index, input, target);
    target[0] = float(index * 7 % 5);
  }
};

TEST(Metrics, AccuracyAndLossAreThoseOfAllExamplesHoweverTheyAreShared) {
  auto evaluate = [](std::vector<std::uint64_t> shares) {
    auto options = replicas(int(shares.size()));
    options.shares = std::move(shares);
    strategies::Mirrored strategy(options);
    engine::GraphSpec graph("classes", {20});
    graph.then("dense1", engine::dense(16));
    graph.then("relu", engine::relu());
    graph.then("dense2", engine::dense(5));
    graph.set_loss(engine::softmax_cross_entropy());
    engine::Trainer trainer(strategy, graph, engine::optim::sgd());
    return trainer.evaluate(Classes(), 11);  // batches of 11, 11, 11 and 6
  };
  const engine::Evaluation one = evaluate({1});
  EXPECT_EQ(one.examples, 39u);
  EXPECT_EQ(one.accuracy * 39, std::round(one.accuracy * 39));
  EXPECT_GT(one.accuracy, 0);
  EXPECT_LT(one.accuracy, 1);
  for (const std::vector<std::uint64_t>& shares :
       {std::vector<std::uint64_t>{1, 1, 1}, {3, 0, 2}, {0, 1}, {5, 2, 4, 1}}) {
    const engine::Evaluation many = evaluate(shares);
    EXPECT_EQ(many.examples, 39u);
    EXPECT_EQ(many.accuracy, one.accuracy);
    EXPECT_NEAR(many.loss, one.loss, 1e-12);
  }
}

TEST(Metrics, ALossThatCountsNoRightAnswersHasNoAccuracy) {
  Job job;  // the mean squared error
  int reports = 0;
  job.on_step = [&](const engine::StepReport& report) {
    EXPECT_TRUE(std::isnan(report.accuracy)) << report.accuracy;
    ++reports;
  };
  train_mirrored(job, replicas(2));
  EXPECT_EQ(reports, job.steps);
  strategies::Mirrored strategy(replicas(2));
  engine::Trainer trainer(strategy, small_graph(job), job.optimizer);
  const engine::Evaluation evaluation = trainer.evaluate(small_data(), 11);
  EXPECT_TRUE(std::isnan(evaluation.accuracy)) << evaluation.accuracy;
  EXPECT_GT(evaluation.loss, 0);
}

TEST(Law1, GradientAccumulationChangesNothingButTheMemory) {
  for (int count : {1, 3}) {
    Job whole, parts;
    parts.accumulate = 4;
    const Outcome a = train_mirrored(whole, replicas(count));
    const Outcome b = train_mirrored(parts, replicas(count));
    EXPECT_LT(difference(a.weights[0], b.weights[0]), 1e-10);
  }
}

TEST(Law2, TwoRunsWithOneSeedAreBitwiseEqual) {
  Job job;
  job.dropout = 0.5;
  EXPECT_EQ(train_mirrored(job, replicas(3)).weights, train_mirrored(job, replicas(3)).weights);
}

TEST(Law3, TheWholeStepIsVerifiedWithAllPlansInFlight) {
  for (double clip : {0.0, 0.05}) {
    for (const Way& way : ways()) {
      if (!way.host.empty()) continue;
      Job job;
      job.centre = true;
      job.optimizer = engine::optim::sgd({.momentum = 0.9, .clip_norm = clip});
      auto options = replicas(way.replicas);
      options.step.algorithm = way.algorithm;
      options.step.update = strategies::update_of(way.update);
      strategies::Mirrored strategy(options);
      strategy.open(small_graph(job), job.optimizer.rule, {11, 1, 1, {}});
      EXPECT_EQ(verify(strategy), "") << way.name << " clip " << clip;
    }
  }
}

// Returns the error of each of two processes of one host that call `start`; empty without one.
std::array<std::string, 2> told(
    const std::function<void(int process, collectives::Bootstrap&)>& start) {
  const auto bootstraps = collectives::in_memory_bootstrap({0, 0}, std::chrono::seconds(20));
  std::array<std::string, 2> text;
  std::vector<std::thread> processes;
  for (std::size_t p = 0; p < text.size(); ++p)
    processes.emplace_back([&, p] {
      try {
        start(int(p), *bootstraps[p]);
      } catch (const engine::Error& error) {
        text[p] = error.what();
      }
    });
  for (std::thread& process : processes) process.join();
  return text;
}

TEST(Law3, ProcessesThatWereStartedDifferentlyAreToldWhatDiffers) {
  const auto texts = told([](int process, collectives::Bootstrap& bootstrap) {
    strategies::CollectiveAllReduce strategy(replicas(1), bootstrap);
    strategy.open(
        small_graph({}), engine::optim::sgd().rule,
        {process == 0 ? std::size_t(11) : std::size_t(12), 1, process == 0 ? 7u : 8u, {}});
  });
  for (const std::string& t : texts) {
    EXPECT_NE(t.find("batch: 12"), std::string::npos) << t;
    EXPECT_NE(t.find("batch: 11"), std::string::npos) << t;
    EXPECT_NE(t.find("seed: 8"), std::string::npos) << t;
  }
}

TEST(Law3, ProcessesWithOtherRatesOrOtherDataAreToldSo) {
  const auto texts = told([](int process, collectives::Bootstrap& bootstrap) {
    strategies::CollectiveAllReduce strategy(replicas(1), bootstrap);
    Job job;
    job.optimizer = engine::optim::sgd({.rate = process == 0 ? 0.01 : 0.5});
    train(strategy, job, nullptr);
  });
  for (const std::string& t : texts) {
    EXPECT_NE(t.find("0.5"), std::string::npos) << t;
    EXPECT_NE(t.find("0.01"), std::string::npos) << t;
  }
}

// Otherwise examples would be skipped or used twice.
TEST(Law3, ProcessesWithOtherSharesOfTheBatchAreToldSo) {
  const auto texts = told([](int process, collectives::Bootstrap& bootstrap) {
    auto options = replicas(1);
    options.shares =
        process == 0 ? std::vector<std::uint64_t>{1, 2} : std::vector<std::uint64_t>{2, 1};
    strategies::CollectiveAllReduce strategy(options, bootstrap);
    strategy.open(small_graph({}), engine::optim::sgd().rule, {11, 1, 1, {}});
  });
  for (const std::string& t : texts)
    EXPECT_NE(t.find("'shares: 2 1' and not 'shares: 1 2'"), std::string::npos) << t;
}

TEST(Law3, TheCommandThatCannotBeObeyedIsAnErrorThatSaysWhy) {
  auto options = replicas(1);
  options.step.algorithm = "direct";
  try {
    train_collective({}, options, {0, 1});
    FAIL() << "it was accepted";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    EXPECT_NE(std::string(error.what()).find("direct needs all ranks on one host"),
              std::string::npos)
        << error.what();
  }
}

TEST(Start, EveryReplicaBeginsWithTheValuesOfRankZero) {
  Job job;
  job.steps = 1;
  job.optimizer.rate = 0;
  const auto device = engine::reference_device();
  const auto ops = device->ops(engine::DType::kFloat64, {});
  engine::Graph graph(small_graph(job), *ops, 1);
  std::vector<double> wanted(graph.parameters());
  graph.initialise(1, reinterpret_cast<std::byte*>(wanted.data()));
  const Outcome outcome = train_collective(job, replicas(2), {0, 1});
  ASSERT_EQ(outcome.weights.size(), 4u);
  for (const auto& weights : outcome.weights) EXPECT_EQ(weights, wanted);
}

TEST(OneReplica, SendsNothingAndEqualsAPlainLoop) {
  // The same arithmetic runs without any strategy: a graph, its gradients, and SGD with momentum.
  Job job;
  const Outcome outcome = train_mirrored(job, replicas(1));
  const auto device = engine::reference_device();
  const auto ops = device->ops(engine::DType::kFloat64, {});
  engine::Graph graph(small_graph(job), *ops, 11);
  std::vector<double> weights(graph.parameters()), gradients(graph.trainable()),
      velocity(graph.trainable());
  graph.bind(reinterpret_cast<std::byte*>(weights.data()),
             reinterpret_cast<std::byte*>(gradients.data()));
  graph.initialise(1, reinterpret_cast<std::byte*>(weights.data()));
  struct Alone : engine::Context {
    using Context::Context;
    std::byte* exchange(int) override { return nullptr; }
    void reduce(int) override {}
  } context(*ops);
  engine::StepState state;
  context.state = &state;
  context.seed = 1;
  const Table data = small_data();
  engine::Pipeline pipeline(data, {.seed = 1, .in_place = true});
  engine::DataPosition position;
  for (std::int64_t step = 0; step < job.steps; ++step) {
    const engine::Range batch = engine::next_batch(position, 39, 11);
    pipeline.request(position.epoch, batch);
    position = engine::after_batch(position, 39, 11);
    const engine::Batch& examples = pipeline.take();
    state = {step,
             std::int64_t(examples.rows()),
             1.0 / double(examples.rows()),
             job.optimizer.schedule.rate(job.optimizer.rate, step, job.steps),
             1,
             graph.ids()};
    for (std::size_t i = 0; i < examples.inputs.size(); ++i) {
      graph.input().as<double>()[i] = double(examples.inputs[i]);
    }
    std::copy(examples.targets.begin(), examples.targets.end(), graph.target().as<float>());
    graph.forward(context, [](engine::Range) {});
    graph.evaluate_loss(context, true);
    graph.backward(context, false, [](engine::Range) {});
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      velocity[i] = 0.9 * velocity[i] + gradients[i];
      weights[i] -= state.rate * velocity[i];
    }
  }
  EXPECT_EQ(outcome.weights[0], weights);
}

}  // namespace law_test
}  // namespace lockstep::test
