// SPDX-License-Identifier: MIT
// What it brings to take the optimizer's update inside the all-reduce: steps of one dense layer
// without its arithmetic, in which every replica writes its gradients, all meet, and the time from
// then until the new weights are there is taken. Fused and apart, in turn, in one run; medians of
// the first replica of this process. Checked: both end with the same weights, bit for bit.
//
//   bench_update --mib 80 --replicas 2
//   mpirun -n 2 bench_update --strategy collective_all_reduce --optimizer adam
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/data/sets.h"
#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "engine/train/staging.h"
#include "strategies/mirror.h"
#include "strategies/session/factories.h"

namespace lockstep::bench {
namespace {

using strategies::Mirror;

constexpr int kTurns = 5, kWarmUp = 2;  // turns of each, steps of a turn that are not timed
constexpr double kRate = 0.01;

struct Flags {
  std::string strategy = "mirrored", algorithm = "auto", optimizer = "momentum";
  int replicas = 2, steps = 8, mib = 80;
  bool json = false;
};

struct Way {
  std::string update;
  std::unique_ptr<engine::Strategy> strategy = {};
  std::vector<double> milliseconds = {};
};

engine::UpdateRule rule_of(const std::string& optimizer) {
  if (optimizer == "adam") return engine::optim::adam({.rate = kRate}).rule;
  return engine::optim::sgd({.rate = kRate, .momentum = optimizer == "momentum" ? 0.9 : 0}).rule;
}

float* floats(const Mirror& mirror, collectives::Space space) {
  return reinterpret_cast<float*>(mirror.space(space));
}

// As a backward pass would leave them: just written, other numbers on each rank and step.
void write_gradients(const Mirror& mirror, std::int64_t step) {
  float* gradients = floats(mirror, collectives::Space::kGradient);
  const auto first = float(mirror.rank + 1) * float(step % 7 + 1) * 1e-4f;
  for (std::size_t i = 0; i < mirror.graph.trainable(); ++i)
    gradients[i] = first + float(i % 64) * 1e-6f;
}

// One turn: steps of one strategy, timed but for the first few.
void take_turn(Way& way, const engine::Dataset& data, std::size_t batch, int turn, int steps) {
  engine::Strategy& strategy = *way.strategy;
  const int first_rank = strategy.membership().rank;
  strategy.deal({data.size(), batch, turn * steps, steps, {}, true});
  strategy.run([&](engine::Replica& r) {
    const auto& mirror = static_cast<const Mirror&>(r);
    engine::Pipeline pipeline(data, {.shuffle = false, .in_place = true});
    const engine::Range all{0, r.graph.trainable()};
    const double nothing[] = {0};
    while (const auto work = strategy.next(r)) {
      pipeline.request(work->epoch, work->mine);
      engine::stage(r, pipeline.take(), work->step, work->whole, kRate);
      write_gradients(mirror, work->step);
      strategy.gather(r, nothing, "a meeting before the clock is read");
      const auto begin = engine::Clock::now();
      strategy.gradient_ready(r, all);
      strategy.finish(r);
      strategy.before_forward(r, all);
      const std::chrono::duration<double, std::milli> took = engine::Clock::now() - begin;
      if (r.rank == first_rank && work->step - turn * steps >= kWarmUp)
        way.milliseconds.push_back(took.count());
    }
  });
}

std::vector<float> weights(engine::Strategy& strategy) {
  std::vector<float> copy;
  strategy.run([&](engine::Replica& r) {
    if (r.rank != strategy.membership().rank) return;
    const float* from = floats(static_cast<const Mirror&>(r), collectives::Space::kWeight);
    copy.assign(from, from + r.graph.parameters());
  });
  return copy;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int run(const Flags& f, int argc, char** argv) {
  engine::require(f.steps > kWarmUp, "--steps must be above {}", kWarmUp);
  engine::GraphSpec graph("one layer", {64, 64, 1});
  graph.then("dense", engine::dense(std::size_t(f.mib) * 64));  // 4,096 weights a unit: 16 KiB
  graph.set_loss(engine::softmax_cross_entropy());
  strategies::Session session(argc, argv);
  Way ways[] = {{"fused"}, {"apart"}};
  std::size_t batch = 0;
  for (Way& way : ways) {
    strategies::StrategyOptions options;
    options.replicas = f.replicas;
    options.threads = 1;
    options.algorithm = f.algorithm;
    options.update = way.update;
    way.strategy = strategies::make_strategy(f.strategy, session, options);
    batch = std::size_t(way.strategy->membership().size);
    way.strategy->open(graph, rule_of(f.optimizer), {batch, 1, 1, {}});
  }
  const auto data =
      engine::data::random_images(graph.input_shape(), graph.output_shape().elements(), batch, 1)
          .train;
  for (int turn = 0; turn < kTurns; ++turn)
    for (Way& way : ways) take_turn(way, *data, batch, turn, f.steps);
  engine::require(weights(*ways[0].strategy) == weights(*ways[1].strategy),
                  "the weights differ, and should have the same bits");
  const engine::Membership me = ways[0].strategy->membership();
  if (!me.chief) return 0;
  const double fused = median(ways[0].milliseconds), apart = median(ways[1].milliseconds);
  if (f.json) {
    const nlohmann::json object{
        {"mib", f.mib},          {"optimizer", f.optimizer},
        {"ranks", me.size},      {"algorithm", ways[0].strategy->algorithm()},
        {"fused_ms", fused},     {"apart_ms", apart},
        {"ratio", apart / fused}};
    fmt::print("{}\n", object.dump());
    return 0;
  }
  fmt::print("{} MiB, {}, {} ranks, {}: fused {:.2f} ms, apart {:.2f} ms, ratio {:.2f}\n", f.mib,
             f.optimizer, me.size, ways[0].strategy->algorithm(), fused, apart, apart / fused);
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Flags f;
  CLI::App app{"The optimizer's update inside the all-reduce, and apart from it.", "bench_update"};
  app.add_option("--mib", f.mib, "of weights")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--optimizer", f.optimizer)
      ->check(CLI::IsMember({"sgd", "momentum", "adam"}))
      ->capture_default_str();
  app.add_option("--strategy", f.strategy)->capture_default_str();
  app.add_option("--algorithm", f.algorithm)->capture_default_str();
  app.add_option("--replicas", f.replicas, "of this process")->capture_default_str();
  app.add_option("--steps", f.steps, "of a turn")->capture_default_str();
  app.add_flag("--json", f.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::bench::run(f, argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_update: {}\n", error.what());
    return 1;
  }
}
