// SPDX-License-Identifier: MIT
// Law 2: a replica whose weights differ from the others is named by variable, rank and step, with
// the update fused and separate. The tests also cover faults that comparing weights does not find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/cpu/cpu_device.h"
#include "engine/train/staging.h"
#include "strategies/synchronous/weight_checks.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace mirror_test {

using collectives::Space;
using engine::Range;
using strategies::Mirror;
using testing::HasSubstr;

constexpr int kRank = 2;
constexpr std::int64_t kStep = 7;

enum class When : std::uint8_t { kNever, kBeforeForward, kBeforeBackward, kBeforeSum };

// A fault: at kStep, replica kRank of three has one bit flipped.
struct Fault {
  When when = When::kNever;
  std::string parameter = {};
  std::function<void(Mirror&, const engine::Parameter&)> flip = {};
};

void flip_element(Mirror& mirror, Space space, std::size_t element) {
  mirror.space(space)[element * sizeof(double)] ^= std::byte{1};
}

Fault of_weight(When when, const std::string& parameter = "dense2.weight") {
  return {when, parameter, [](Mirror& mirror, const engine::Parameter& p) {
            flip_element(mirror, Space::kWeight, p.range.begin + 23);
          }};
}

// Returns a fault in a significant bit of the first slot element that the replica owns.
Fault of_slot() {
  return {When::kBeforeBackward, "dense2.weight",
          [](Mirror& mirror, const engine::Parameter&) { mirror.slot(0, 0)[6] ^= std::byte{1}; }};
}

Fault of_gradient() {
  return {When::kBeforeSum, "dense2.weight", [](Mirror& mirror, const engine::Parameter& p) {
            mirror.space(Space::kGradient)[(p.range.begin + 23) * sizeof(double) + 6] ^=
                std::byte{1};
          }};
}

struct Way {
  std::string name;
  std::vector<int> host;  // host of each process; empty: Mirrored
  std::string algorithm, update;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all{{"mirrored, fused", {}, "direct", "fused"},
                                    {"mirrored, separate", {}, "direct", "separate"},
                                    {"3 hosts, fused", {0, 1, 2}, "ring", "fused"},
                                    {"2 hosts, separate", {0, 0, 1}, "hierarchical", "separate"}};
  return all;
}

// Holds the result of a run: the errors of its processes, or its weights by rank.
struct Ended {
  std::vector<std::string> errors;
  std::vector<std::vector<double>> weights;
};

void steps_of(strategies::Synchronous& strategy, const Fault& fault, engine::Replica& replica) {
  const Table data = small_data();
  engine::Pipeline pipeline(data, {.seed = 1, .in_place = true});
  while (const auto work = strategy.next(replica)) {
    const auto at = [&](When when, Range range) {
      if (when != fault.when || replica.rank != kRank || work->step != kStep) return;
      for (const engine::Parameter& p : replica.graph.layout())
        if (p.name == fault.parameter && range.holds(p.range))
          fault.flip(static_cast<Mirror&>(replica), p);
    };
    pipeline.request(work->epoch, work->local_batch);
    engine::stage(replica, pipeline.take(), work->step, work->global_batch, 0.01);
    replica.graph.forward(*replica.context, [&](Range x) {
      strategy.before_forward(replica, x);
      at(When::kBeforeForward, x);
    });
    replica.graph.evaluate_loss(*replica.context, true);
    at(When::kBeforeBackward, {0, replica.graph.parameters()});
    replica.graph.backward(*replica.context, false, [&](Range x) {
      at(When::kBeforeSum, x);
      strategy.gradient_ready(replica, x);
    });
    strategy.finish(replica);
    strategy.report(replica, work->step, {});
  }
}

void train_by_hand(strategies::Synchronous& strategy, const Fault& fault, std::int64_t steps,
                   Ended& ended, std::size_t process) {
  engine::GraphSpec graph = small_graph({});
  if (fault.parameter.starts_with("dense1")) graph.freeze("dense1");
  try {
    strategy.open(graph, Job().optimizer.rule, {11, 1, 1, {}});
    strategy.assign({39, 11, 0, steps, {}, true});
    strategy.run([&](engine::Replica& replica) { steps_of(strategy, fault, replica); });
    for (int local = 0; local < strategy.membership().local; ++local)
      ended.weights[process + std::size_t(local)] = weights(strategy, local);
  } catch (const engine::Error& error) {
    ended.errors[process] = error.what();
  }
}

Ended run(const Way& way, const Fault& fault, std::int64_t steps = kStep + 3) {
  Ended ended{std::vector<std::string>(std::max<std::size_t>(1, way.host.size())),
              std::vector<std::vector<double>>(3)};
  auto options = replicas(way.host.empty() ? 3 : 1);
  options.step.algorithm = way.algorithm;
  options.step.update = strategies::update_of(way.update);
  if (way.host.empty()) {
    strategies::Mirrored strategy(options);
    train_by_hand(strategy, fault, steps, ended, 0);
    return ended;
  }
  const auto bootstraps = collectives::in_memory_bootstrap(way.host, std::chrono::seconds(20));
  std::vector<std::jthread> processes;
  for (std::size_t p = 0; p < bootstraps.size(); ++p)
    processes.emplace_back([&, p] {
      strategies::CollectiveAllReduce strategy(options, *bootstraps[p]);
      train_by_hand(strategy, fault, steps, ended, p);
    });
  processes.clear();
  return ended;
}

void expect_named(const Ended& ended, const std::string& parameter, std::int64_t step) {
  for (const std::string& error : ended.errors)
    EXPECT_EQ(error, fmt::format("mirrors are no longer equal: {} differs on rank {} from rank 0 "
                                 "at step {}",
                                 parameter, kRank, step + 1));
}

// Expects mirrors that are equal, but differ from those of an undisturbed run.
void expect_taken_by_all(const Way& way, const Fault& fault) {
  const Ended ended = run(way, fault);
  for (const std::string& error : ended.errors) EXPECT_EQ(error, "");
  for (const auto& weights : ended.weights) EXPECT_EQ(weights, ended.weights[0]);
  EXPECT_NE(ended.weights[0], run(way, {}).weights[0]) << "the fault changed nothing";
}

TEST(Law2, AMirrorThatDiffersIsNamedByVariableRankAndStep) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    for (const When when : {When::kBeforeForward, When::kBeforeBackward, When::kBeforeSum})
      expect_named(run(way, of_weight(when)), "dense2.weight", kStep);
    expect_named(run(way, of_weight(When::kBeforeBackward, "dense1.weight")), "dense1.weight",
                 kStep);  // frozen
    // A mismatch in the last step is reported before anything can be saved.
    expect_named(run(way, of_weight(When::kBeforeForward), kStep + 1), "dense2.weight", kStep);
  }
}

// With a fused update, each slot exists once. With a separate one, weights differ one update later.
TEST(Law2, AWrongSlotIsFoundWhereEachReplicaHasItsOwn) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    if (way.update == "fused") {
      expect_taken_by_all(way, of_slot());
      continue;
    }
    const Ended ended = run(way, of_slot());
    for (const std::string& error : ended.errors) {
      EXPECT_THAT(error, HasSubstr("mirrors are no longer equal: dense"));
      EXPECT_THAT(error, HasSubstr(fmt::format("differs on rank {} from rank 0 at step {}", kRank,
                                               kStep + 2)));
    }
  }
}

TEST(Law2, AWrongGradientReachesAllMirrorsAndIsNotFound) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    expect_taken_by_all(way, of_gradient());
  }
}

TEST(Law2, OfStepsThatAreReportedTogetherEachIsChecked) {
  for (const char* update : {"fused", "separate"}) {
    auto options = replicas(3);
    options.step.update = strategies::update_of(update);
    strategies::Mirrored strategy(options);
    const Job job;
    const Table data = small_data();
    engine::Trainer trainer(strategy, small_graph(job), job.optimizer);
    const engine::FitOptions fit{.steps = 30, .global_batch = 11, .steps_per_execution = 4};
    trainer.fit(data, fit);
    trainer.fit(data, fit);  // nothing is wrong yet
    corrupt(strategy, kRank, 5 * 32 + 16 + 7);
    try {
      trainer.fit(data, fit);
      ADD_FAILURE() << "nobody noticed, " << update;
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kCorrupt);
      EXPECT_THAT(error.what(), HasSubstr("dense2.weight differs on rank 2 from rank 0 at step"));
    }
  }
}

TEST(Law2, TheStrategySaysWhatIsCompared) {
  for (const Way& way : ways()) {
    if (!way.host.empty()) continue;
    auto options = replicas(3);
    options.step.update = strategies::update_of(way.update);
    strategies::Mirrored strategy(options);
    strategy.open(small_graph({}), Job().optimizer.rule, {11, 1, 1, {}});
    EXPECT_THAT(strategy.explain(), HasSubstr("\nmirrors: "));
    EXPECT_EQ(strategy.explain().find("optimizer state") != std::string::npos,
              way.update == "fused");
  }
}

// Returns the number of steps until the hashes of two replicas differ. The replicas differ in one
// element, in piece `piece` of their first parameter.
int steps_until_found(const engine::GraphSpec& spec, std::size_t examples, std::size_t piece) {
  const auto device = engine::cpu_device();
  const auto ops = device->ops(engine::DType::kFloat32, {});
  const engine::Graph graph(spec, *ops, 1);
  std::vector<float> weights(graph.parameters(), 0.5f), other = weights;
  other[piece * strategies::WeightChecks::kPiece + 5] = 0.25f;
  strategies::WeightChecks mine(*ops, graph, examples), others(*ops, graph, examples);
  for (int step = 0; step < 100; ++step) {
    for (auto& [checks, values] : {std::pair(&mine, &weights), std::pair(&others, &other)}) {
      checks->add(reinterpret_cast<const std::byte*>(values->data()), graph.parameters(), step);
      checks->end_step();
      checks->keep(step);
    }
    if (mine.take(step) == others.take(step)) continue;
    EXPECT_NE(mine.hash_of(piece), others.hash_of(piece));
    EXPECT_EQ(mine.parameter(piece), graph.layout()[0].name);
    return step;
  }
  return 100;
}

// Expects that a difference in piece p is found after p modulo `cycle` steps, because all pieces
// are checked once in `cycle` steps.
void expect_cycle(const engine::GraphSpec& spec, std::size_t examples, std::size_t cycle) {
  for (const std::size_t piece : {0, 5, 18})
    EXPECT_EQ(steps_until_found(spec, examples, piece), int(piece % cycle)) << spec.name();
}

TEST(WeightChecks, WhatIsReadForLittleWorkIsCheckedInTurn) {
  using strategies::WeightChecks;
  const auto one_layer = [](const std::string& name, engine::Shape input, engine::LayerPtr layer) {
    engine::GraphSpec spec(name, input);
    spec.then("layer", std::move(layer));
    spec.set_loss(engine::mean_squared_error());
    return spec;
  };
  const std::size_t rows = 19 * WeightChecks::kPiece / 64;
  const auto table = one_layer("table", {1}, engine::embedding(rows, 64, {}));
  auto layer = one_layer("dense", {64}, engine::dense(rows, {.bias = false}));
  const auto kernel =
      one_layer("convolution", {1, 1, 64}, engine::convolution(rows, 1, {.bias = false}));
  expect_cycle(table, 1000, 16);
  for (const auto& [examples, cycle] : {std::pair(1, 16), {32, 8}, {100, 2}, {256, 1}, {5000, 1}})
    expect_cycle(layer, std::size_t(examples), std::size_t(cycle));
  expect_cycle(kernel, 1, 1);
  layer.freeze("layer");
  expect_cycle(layer, 1000, 16);
  const auto small = one_layer("small", {64}, engine::dense(256, {.bias = false}));
  EXPECT_EQ(steps_until_found(small, 1, 0), 0);
}

}  // namespace mirror_test
}  // namespace lockstep::test
