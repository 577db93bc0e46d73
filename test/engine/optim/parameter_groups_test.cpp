// SPDX-License-Identifier: MIT
// Tests parameter groups of optimizers against the formulas in a plain loop. Only weights decay,
// and the rates of LARS hold for whole weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/cpu/cpu_device.h"
#include "engine/nn/graph_plan.h"
#include "engine/nn/local_context.h"
#include "engine/optim/update_segments.h"
#include "engine/reference/reference_device.h"
#include "engine/train/staging.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace parameter_groups_test {

namespace optim = engine::optim;
using engine::Group;
using engine::UpdateSegment;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Job job_with(const optim::Optimizer& optimizer) {
  Job job;
  job.norm = true;
  job.optimizer = optimizer;
  return job;
}

optim::Optimizer decayed(bool all = false) {
  return optim::sgd({.rate = 0.02, .momentum = 0.9, .weight_decay = 0.1, .decay_all = all});
}
optim::Optimizer adapted() {
  return optim::lars({.rate = 0.5, .weight_decay = 0.01, .trust = 0.02, .epsilon = 1e-3});
}

TEST(Segments, EndWhereParametersAreOfAnotherGroup) {
  const engine::GraphPlan plan = engine::plan_graph(small_graph(job_with(decayed())));
  std::vector<std::size_t> begins;
  for (const engine::Parameter& parameter : plan.layout) begins.push_back(parameter.range.begin);
  const auto segments = [&](const optim::Optimizer& optimizer) {
    return engine::update_segments(optimizer.rule, plan.layout, plan.trainable);
  };
  // The order is: weight and bias of dense3 and dense2, scale and shift, weight and bias of dense1.
  ASSERT_EQ(begins.size(), 8u);
  EXPECT_THAT(segments(decayed()),
              ElementsAre(UpdateSegment{begins[1], true}, UpdateSegment{begins[2], false},
                          UpdateSegment{begins[3], true}, UpdateSegment{begins[6], false},
                          UpdateSegment{begins[7], true}, UpdateSegment{plan.trainable, false}));
  EXPECT_THAT(
      segments(adapted()),
      ElementsAre(UpdateSegment{begins[1], true, true}, UpdateSegment{begins[2], false},
                  UpdateSegment{begins[3], true, true}, UpdateSegment{begins[6], false},
                  UpdateSegment{begins[7], true, true}, UpdateSegment{plan.trainable, false}));
  EXPECT_THAT(segments(decayed(true)), IsEmpty());
  EXPECT_THAT(segments(optim::sgd({.momentum = 0.9})), IsEmpty());
}

TEST(Segments, OfWeightsSideBySideAreOneUnlessEachHasARateOfItsOwn) {
  engine::GraphSpec graph("two", {3});
  graph.then("a", engine::dense(5, {.bias = false}));
  graph.then("b", engine::dense(2, {.bias = false}));
  graph.set_loss(engine::mean_squared_error());
  graph.freeze("a.weight");
  const engine::GraphPlan frozen = engine::plan_graph(graph);
  EXPECT_THAT(engine::update_segments(adapted().rule, frozen.layout, frozen.trainable),
              ElementsAre(UpdateSegment{16, true, true}));
  engine::GraphSpec both("two", {3});
  both.then("a", engine::dense(5, {.bias = false}));
  both.then("b", engine::dense(2, {.bias = false}));
  both.set_loss(engine::mean_squared_error());
  const engine::GraphPlan plan = engine::plan_graph(both);
  EXPECT_THAT(engine::update_segments(decayed().rule, plan.layout, plan.trainable),
              ElementsAre(UpdateSegment{32, true}));
  EXPECT_THAT(engine::update_segments(adapted().rule, plan.layout, plan.trainable),
              ElementsAre(UpdateSegment{16, true, true}, UpdateSegment{32, true, true}));
}

// Holds a parameter's elements in the order of the arena.
struct Elements {
  bool weight = false;
  std::span<double> w, v;  // values, velocities
  std::span<const double> g;
};
using Rule = std::function<void(const Elements&, double rate)>;

// Returns the final weights of the job without any strategy. `rule` updates a whole parameter.
std::vector<double> by_hand(const Job& job, const Rule& rule) {
  const auto ops = engine::reference_ops(engine::DType::kFloat64);
  engine::Graph graph(small_graph(job), *ops, job.batch);
  std::vector<double> weights(graph.parameters()), gradients(graph.trainable()),
      velocities(graph.trainable());
  graph.bind(reinterpret_cast<std::byte*>(weights.data()),
             reinterpret_cast<std::byte*>(gradients.data()));
  graph.initialise(1, reinterpret_cast<std::byte*>(weights.data()));
  engine::StepState state;
  engine::LocalContext context(*ops, graph);
  context.state = &state;
  context.seed = 1;
  const Table data = small_data();
  engine::Pipeline pipeline(data, {.seed = 1, .in_place = true});
  engine::DataPosition position;
  for (std::int64_t step = 0; step < job.steps; ++step) {
    pipeline.request(position.epoch, engine::next_batch(position, data.size(), job.batch));
    position = engine::after_batch(position, data.size(), job.batch);
    const engine::Batch& examples = pipeline.take();
    const double rate = job.optimizer.schedule.rate(job.optimizer.rate, step, job.steps);
    const auto rows = std::int64_t(examples.rows());
    state = {step, rows, 1.0 / double(rows), rate, 1, graph.ids()};
    std::copy(examples.inputs.begin(), examples.inputs.end(), graph.input().as<double>());
    std::copy(examples.targets.begin(), examples.targets.end(), graph.target().as<float>());
    graph.forward(context, {});
    graph.evaluate_loss(context, true);
    graph.backward(context, false, {});
    for (const engine::Parameter& p : graph.layout()) {
      const std::size_t at = p.range.begin, count = p.range.size();
      rule({p.group == Group::kWeight,
            {weights.data() + at, count},
            {velocities.data() + at, count},
            {gradients.data() + at, count}},
           rate);
    }
  }
  return weights;
}

double norm(std::span<const double> numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number * number;
  return std::sqrt(sum);
}

Rule decay_of(bool all) {
  return [all](const Elements& p, double rate) {
    for (std::size_t i = 0; i < p.w.size(); ++i) {
      p.v[i] = 0.9 * p.v[i] + p.g[i] + (p.weight || all ? 0.1 : 0) * p.w[i];
      p.w[i] -= rate * p.v[i];
    }
  };
}

void lars_rule(const Elements& p, double rate) {
  const double decay = p.weight ? 0.01 : 0, w = norm(p.w), g = norm(p.g);
  const double local = p.weight && w > 0 && g > 0 ? 0.02 * w / (g + 0.01 * w + 1e-3) : 1;
  for (std::size_t i = 0; i < p.w.size(); ++i) {
    p.v[i] = 0.9 * p.v[i] + rate * local * (p.g[i] + decay * p.w[i]);
    p.w[i] -= p.v[i];
  }
}

struct Way {
  int replicas;           // per process
  std::vector<int> host;  // of each process; empty: Mirrored
  std::string algorithm = "auto";
};

const std::vector<Way> kWays{{1, {}},     {2, {}},     {3, {}, "ring"},
                             {1, {0, 0}}, {2, {0, 1}}, {1, {0, 1, 1}, "hierarchical"}};

Outcome train_by(const Job& job, const Way& way) {
  auto options = replicas(way.replicas);
  options.step.algorithm = way.algorithm;
  return way.host.empty() ? train_mirrored(job, options) : train_collective(job, options, way.host);
}

void expect_formula(const Job& job, const Rule& rule) {
  const std::vector<double> answer = by_hand(job, rule);
  for (const Way& way : kWays) {
    const Outcome outcome = train_by(job, way);
    for (const std::vector<double>& weights : outcome.weights) {
      EXPECT_LT(difference(weights, answer), 1e-10) << job.optimizer.describe();
      EXPECT_EQ(weights, outcome.weights[0]) << job.optimizer.describe();
    }
  }
}

TEST(Decay, IsOfWeightsAloneUnlessItIsAskedForAll) {
  expect_formula(job_with(decayed()), decay_of(false));
  expect_formula(job_with(decayed(true)), decay_of(true));
  // The two variants must differ enough for these tests to detect it.
  EXPECT_GT(difference(by_hand(job_with(decayed()), decay_of(false)),
                       by_hand(job_with(decayed()), decay_of(true))),
            1e-4);
}

// Segments end within blocks, and blocks end within segments.
TEST(Decay, GivesTheSameBitsFusedAndSeparateForAnyBucketSize) {
  const auto cpu = engine::cpu_device();
  for (const engine::DType dtype : {engine::DType::kFloat64, engine::DType::kFloat32})
    for (const optim::Optimizer& optimizer :
         {decayed(), optim::adamw({.rate = 0.003, .weight_decay = 0.1}),
          optim::adam({.rate = 0.003, .weight_decay = 0.1, .clip_norm = 0.05})})
      for (const int count : {1, 2, 5}) {
        Job job = job_with(optimizer);
        job.dtype = dtype;
        const auto with = [&](const std::string& update, std::size_t bucket) {
          auto options = replicas(count);
          if (dtype == engine::DType::kFloat32)
            options.devices.assign(std::size_t(count), cpu.get());
          options.step.update = strategies::update_of(update);
          options.step.bucket_bytes = bucket;
          return train_mirrored(job, options).weights;
        };
        const auto apart = with("separate", 1);
        for (const std::size_t bucket : {std::size_t(1), std::size_t(20000), std::size_t(1) << 30})
          EXPECT_EQ(with("fused", bucket), apart)
              << optimizer.describe() << ", " << count << " replicas, bucket " << bucket;
      }
}

TEST(Lars, IsItsFormulaForAnyNumberOfReplicas) {
  expect_formula(job_with(adapted()), lars_rule);
}

TEST(Lars, GivesTheSameBitsForAnyBucketSize) {
  const auto cpu = engine::cpu_device();
  for (const engine::DType dtype : {engine::DType::kFloat64, engine::DType::kFloat32})
    for (const int count : {1, 2, 3}) {
      Job job = job_with(adapted());
      job.dtype = dtype;
      const auto with = [&](std::size_t bucket, bool overlap) {
        auto options = replicas(count);
        if (dtype == engine::DType::kFloat32) options.devices.assign(std::size_t(count), cpu.get());
        options.step.bucket_bytes = bucket;
        options.step.overlap = overlap;
        options.hook = overlap ? delays(count) : nullptr;
        return train_mirrored(job, options).weights;
      };
      const auto blocks = with(1, true);
      for (const auto& weights : blocks) EXPECT_EQ(weights, blocks[0]);
      for (const std::size_t bucket : {std::size_t(20000), std::size_t(1) << 30})
        for (const bool overlap : {false, true})
          EXPECT_EQ(with(bucket, overlap), blocks) << count << " replicas, bucket " << bucket;
    }
}

TEST(Lars, WaitsForAllSumsAndItsStepIsVerified) {
  for (const Way& way : kWays) {
    if (!way.host.empty()) continue;
    auto options = replicas(way.replicas);
    options.step.algorithm = way.algorithm;
    strategies::Mirrored strategy(options);
    const Job job = job_with(adapted());
    strategy.open(small_graph(job), job.optimizer.rule, {11, 1, 1, {}});
    EXPECT_EQ(verify(strategy), "");
    EXPECT_THAT(strategy.explain(), HasSubstr("update: separate, because lars needs the norms of "
                                              "whole weights and of their gradients first"));
    const strategies::StepDesign& design = strategy.step();
    EXPECT_GT(design.buckets.size(), 2u);
    for (const int update : design.stages.updates)
      EXPECT_EQ(design.plan[std::size_t(update)].after.size(), design.buckets.size());
  }
}

std::string refused(const optim::Optimizer& optimizer, const std::string& update) {
  auto options = replicas(2);
  options.step.update = strategies::update_of(update);
  strategies::Mirrored strategy(options);
  const Job job = job_with(optimizer);
  try {
    strategy.open(small_graph(job), job.optimizer.rule, {11, 1, 1, {}});
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "it was accepted";
}

TEST(Lars, FusedOrClippedIsRefusedWithTheReason) {
  EXPECT_THAT(refused(adapted(), "fused"),
              HasSubstr("update fused: lars needs the norms of whole weights and of their "
                        "gradients first, which are known when all are summed: use separate"));
  optim::Optimizer clipped = adapted();
  clipped.rule.clip_norm = 1;
  EXPECT_THAT(refused(clipped, "auto"), HasSubstr("lars with clip_norm 1"));
}

}  // namespace parameter_groups_test
}  // namespace lockstep::test
