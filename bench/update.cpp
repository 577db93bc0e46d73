// SPDX-License-Identifier: MIT
// Measures the gain of a fused update: steps of one dense layer without its arithmetic. Every
// replica writes its gradients, all meet, and the time from then until the new weights are
// everywhere is taken. Three variants are interleaved in one run, by medians: fused; separate per
// bucket, so that an update finds its sums in the caches; and separate in one bucket, so that it
// does not, as after a library's all-reduce. Checked: all end with the same weights, bit for bit.
//
// Each has a roofline, measured in the same rounds: the reductions of the same plan on other
// memory, by all ranks at once, without waiting. The difference to 100 % is waiting time; the rest
// of a ratio is memory.
//
//   bench_update --mib 80 --replicas 2
//   mpirun -n 2 bench_update --strategy collective_all_reduce --optimizer adam
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/median.h"
#include "engine/data/sets.h"
#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "engine/train/staging.h"
#include "strategies/session/factories.h"
#include "strategies/synchronous/mirror.h"
#include "strategies/synchronous/synchronous.h"
#include "tools/bench/program_flags.h"

namespace lockstep::bench {
namespace {

using strategies::Mirror;

constexpr int kTurns = 5, kWarmUp = 2;  // rounds per variant; untimed steps per round
constexpr double kRate = 0.01;

struct Flags {
  std::string strategy = "mirrored", algorithm = "auto", optimizer = "momentum";
  int replicas = 2, steps = 8, mib = 80;
  bool json = false;
};

struct Way {
  std::string name, update;
  std::size_t bucket_bytes = 0;  // 0: automatic
  bool alone = false;            // without waiting for other ranks
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

// Writes gradients like a backward pass: freshly written, and different on each rank and step.
void write_gradients(const Mirror& mirror, std::int64_t step) {
  float* gradients = floats(mirror, collectives::Space::kGradient);
  const auto first = float(mirror.rank + 1) * float(step % 7 + 1) * 1e-4f;
  for (std::size_t i = 0; i < mirror.graph.trainable(); ++i)
    gradients[i] = first + float(i % 64) * 1e-6f;
}

const strategies::StepDesign& design_of(const Way& way) {
  return dynamic_cast<const strategies::Synchronous&>(*way.strategy).step();
}

// Runs the rank's reductions of all buckets like the executor, but as if all inputs had arrived.
void reduce_alone(Mirror& m, const strategies::StepDesign& design, const engine::UpdateRule& rule) {
  std::size_t packed = 0;  // owned elements so far
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (const std::vector<int>& stages : design.stages.buckets)
    for (const int stage : stages)
      for (const auto& lane : design.plan[std::size_t(stage)].plan.lanes[std::size_t(m.rank)])
        for (const collectives::Step& step : lane) {
          if (step.action != collectives::Action::kReduce) continue;
          from.clear(), to.clear();
          for (const collectives::Operand& operand : step.from)
            from.push_back(m.space(operand.space, operand.rank) + operand.offset * sizeof(float));
          for (const collectives::Operand& operand : step.to)
            to.push_back(m.space(operand.space, operand.rank) + operand.offset * sizeof(float));
          engine::ReduceArguments a;
          a.from = from;
          a.to = to;
          a.count = step.count;
          a.stream = m.executor().streams(step, sizeof(float));
          a.read_ahead = m.executor().reads_ahead();
          a.epilogue = step.epilogue;
          if (step.epilogue == engine::Epilogue::kUpdate) {
            a.update.rule = &rule;
            a.update.state = &m.Replica::state;
            a.update.weight =
                m.space(collectives::Space::kWeight) + step.from[0].offset * sizeof(float);
            for (std::size_t s = 0; s < rule.slots(); ++s) a.update.slots[s] = m.slot(s, packed);
            packed += step.count;
          }
          m.kernels().reduce(a);
        }
}

// Returns the milliseconds from the start of the first rank to the end of the last one. Hosts have
// no common clock, so between hosts it is the time of the slowest rank.
double span_of(engine::Strategy& strategy, engine::Replica& r, bool one_host,
               engine::Clock::time_point begin, engine::Clock::time_point end) {
  const auto since = [](engine::Clock::time_point t) {
    return std::chrono::duration<double, std::milli>(t.time_since_epoch()).count();
  };
  const double mine[] = {since(begin), since(end)};
  const std::vector<double> all = strategy.gather(r, mine, "when each began and ended");
  double first = all[0], last = all[1], longest = 0;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    first = std::min(first, all[i]), last = std::max(last, all[i + 1]);
    longest = std::max(longest, all[i + 1] - all[i]);
  }
  return one_host ? last - first : longest;
}

// Runs one round: steps of one strategy, all timed but the first few.
void take_turn(Way& way, const engine::Dataset& data, const engine::UpdateRule& rule, bool one_host,
               std::size_t batch, int turn, int steps) {
  engine::Strategy& strategy = *way.strategy;
  const int first_rank = strategy.membership().rank;
  strategy.assign({data.size(), batch, turn * steps, steps, {}, true});
  strategy.run([&](engine::Replica& r) {
    auto& mirror = static_cast<Mirror&>(r);
    engine::Pipeline pipeline(data, {.shuffle = false, .in_place = true});
    const engine::Range all{0, r.graph.trainable()};
    const double nothing[] = {0};
    while (const auto work = strategy.next(r)) {
      pipeline.request(work->epoch, work->local_batch);
      engine::stage(r, pipeline.take(), work->step, work->global_batch, kRate);
      strategy.staged(r);
      write_gradients(mirror, work->step);
      strategy.gather(r, nothing, "a meeting before the clock is read");
      const auto begin = engine::Clock::now();
      if (way.alone) {
        reduce_alone(mirror, design_of(way), rule);
      } else {
        strategy.gradient_ready(r, all);
        strategy.finish(r);
        strategy.before_forward(r, all);
      }
      const double took = span_of(strategy, r, one_host, begin, engine::Clock::now());
      if (r.rank == first_rank && work->step - turn * steps >= kWarmUp)
        way.milliseconds.push_back(took);
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

void print(const Flags& f, const std::vector<Way>& ways) {
  const engine::Membership me = ways[0].strategy->membership();
  const double fused = engine::median(ways[0].milliseconds);
  nlohmann::json object{{"mib", f.mib},
                        {"optimizer", f.optimizer},
                        {"ranks", me.size},
                        {"algorithm", ways[0].strategy->algorithm()}};
  if (!f.json)
    fmt::print("{} MiB, {}, {} ranks, {}\n", f.mib, f.optimizer, me.size,
               ways[0].strategy->algorithm());
  for (std::size_t i = 0; i < ways.size(); ++i) {
    if (ways[i].alone) continue;
    const double took = engine::median(ways[i].milliseconds);
    const bool beside = i + 1 < ways.size() && ways[i + 1].alone;
    const double percent = beside ? 100 * engine::median(ways[i + 1].milliseconds) / took : 0;
    object[ways[i].name + "_ms"] = took;
    if (beside) object[ways[i].name + "_roofline_percent"] = percent;
    if (i > 0) object[i + 1 + beside < ways.size() ? "ratio" : "ratio_in_one"] = took / fused;
    if (f.json) continue;
    const std::size_t buckets = design_of(ways[i]).buckets.size();
    fmt::print("  {:13}{:9.3f} ms in {} bucket{}{}{}\n", ways[i].name, took, buckets,
               buckets == 1 ? "" : "s",
               beside ? fmt::format(", {:.0f} % of its roofline", percent) : "",
               i > 0 ? fmt::format(", {:.2f} times fused", took / fused) : "");
  }
  if (f.json) fmt::print("{}\n", object.dump());
}

int run(const Flags& f, int argc, char** argv) {
  engine::require(f.steps > kWarmUp, "--steps must be above {}", kWarmUp);
  engine::GraphSpec graph("one layer", {64, 64, 1});
  graph.then("dense", engine::dense(std::size_t(f.mib) * 64));  // 4,096 weights per unit: 16 KiB
  graph.set_loss(engine::softmax_cross_entropy());
  strategies::Session session(argc, argv);
  const engine::UpdateRule rule = rule_of(f.optimizer);
  std::vector<Way> ways;
  std::size_t batch = 0;
  bool one_host = true;
  const auto open = [&](Way way) {
    strategies::StrategyOptions options;
    options.replicas = f.replicas;
    options.threads = 1;
    options.step.algorithm = f.algorithm;
    options.step.update = strategies::update_of(way.update);
    options.step.bucket_bytes = way.bucket_bytes;
    way.strategy = strategies::make_strategy(f.strategy, session, options);
    batch = std::size_t(way.strategy->membership().size);
    way.strategy->open(graph, rule, {batch, 1, 1, {}});
    const auto& all = dynamic_cast<const strategies::Synchronous&>(*way.strategy);
    one_host = all.topology().hosts.size() == 1;
    ways.push_back(std::move(way));
  };
  const std::size_t whole = (std::size_t(f.mib) + 1) << 20;  // with the biases
  for (const Way& way : {Way{"fused", "fused"}, Way{"separate", "separate"},
                         Way{"separate_in_one", "separate", whole}}) {
    open({way.name, way.update, way.bucket_bytes});
    if (one_host) open({way.name, way.update, way.bucket_bytes, true});
  }
  const auto data =
      engine::data::random_images(graph.input_shape(), graph.output_shape().elements(), batch, 1)
          .train;
  for (int turn = 0; turn < kTurns; ++turn)
    for (Way& way : ways) take_turn(way, *data, rule, one_host, batch, turn, f.steps);
  const std::vector<float> answer = weights(*ways[0].strategy);
  for (const Way& way : ways)
    engine::require(way.alone || weights(*way.strategy) == answer,
                    "the weights of {} are others than fused, and should have the same bits",
                    way.name);
  if (ways[0].strategy->membership().chief) print(f, ways);
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using lockstep::tools::bench::NumberRange, lockstep::tools::bench::ProgramFlags;
  lockstep::bench::Flags f;
  ProgramFlags flags("bench_update",
                     "The optimizer's update inside the all-reduce, and separate from it.");
  flags.option("--mib", f.mib, "of weights", NumberRange{1, 4096});
  flags.option("--optimizer", f.optimizer, {}, std::vector<std::string>{"sgd", "momentum", "adam"});
  flags.option("--strategy", f.strategy);
  flags.option("--algorithm", f.algorithm);
  flags.option("--replicas", f.replicas, "of this process");
  flags.option("--steps", f.steps, "of a turn");
  flags.flag("--json", f.json, "one JSON object");
  return flags.run(argc, argv, [&] { return lockstep::bench::run(f, argc, argv); });
}
