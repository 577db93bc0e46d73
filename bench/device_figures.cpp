// SPDX-License-Identifier: MIT
#include "bench/device_figures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/optim/optimizer.h"
#include "tools/bench/batches.h"
#include "tools/bench/ceilings.h"
#include "tools/bench/flat_replicas.h"

namespace lockstep::bench {
namespace {

using tools::bench::Batches;
using tools::bench::CopyCeiling;
using tools::bench::FlatOptions;
using tools::bench::FlatReplicas;

void take_turns(const std::vector<Batches*>& all, const DeviceOptions& options) {
  time_batches(all, options.turns, options.batch_seconds);
}

// Measures the copy that the other measurements are compared with.
struct Copy {
  Copy(engine::Device& device, const DeviceOptions& options)
      : ops(device.ops(options.dtype, {})), ceiling(*ops, options.copied) {
    timed.seconds = [this](int calls) { return ceiling.seconds(calls); };
  }
  // Returns the bytes read and written per second.
  double rate() const {
    engine::require(ceiling.holds(), "the copy is not what was copied");
    return ceiling.moved() / engine::median(timed.samples);
  }
  std::unique_ptr<engine::Ops> ops;
  CopyCeiling ceiling;
  Batches timed = {};
};

void require_measurable(const DeviceOptions& options) {
  engine::require(options.turns >= 1 && options.batch_seconds > 0,
                  "at least one turn, of some time, is needed");
  engine::require(options.copied >= 4096,
                  "copies of less than 4096 bytes tell nothing of a device's memory");
  engine::require(options.parameters >= 1024, "{} parameters: at least 1024 are needed",
                  options.parameters);
}

nlohmann::json head(const char* bench, engine::Device& device, const DeviceOptions& options) {
  return {{"bench", bench},
          {"device", to_string(device.id())},
          {"dtype", engine::name(options.dtype)},
          {"turns", options.turns}};
}

void add_times(nlohmann::json& row, const Batches& timed, double bytes, double copy_rate) {
  const double seconds = engine::median(timed.samples);
  row["calls"] = timed.calls;
  row["microseconds"] = seconds * 1e6;
  row["gb_s"] = bytes / seconds / 1e9;
  row["share_of_copy"] = bytes / seconds / copy_rate;
}

FlatOptions flat(engine::Device& device, const DeviceOptions& options, int replicas) {
  FlatOptions flat;
  flat.devices.assign(std::size_t(replicas), &device);
  flat.elements = options.parameters;
  flat.dtype = options.dtype;
  flat.update = strategies::Update::kSeparate;
  flat.bucket_bytes =
      (options.parameters + engine::kBlock) * sizeof(double);  // enough for one bucket
  return flat;
}

engine::UpdateRule momentum() {
  return engine::optim::sgd({.rate = 0.01, .momentum = 0.9}).rule;
}

}  // namespace

nlohmann::json optimizer_figures(engine::Device& device, const DeviceOptions& options) {
  require_measurable(options);
  Copy copy(device, options);
  FlatOptions alone = flat(device, options, 1);
  alone.rule = momentum();
  alone.update = strategies::Update::kFused;
  FlatReplicas replica(alone);
  Batches timed{.seconds = [&](int calls) { return replica.update(calls); }};
  take_turns({&copy.timed, &timed}, options);
  nlohmann::json object = head("optimizer", device, options);
  const double rate = copy.rate();
  object["copy_gb_s"] = rate / 1e9;
  object["parameters"] = options.parameters;
  object["bytes_per_parameter"] = replica.fused_bytes() / double(options.parameters);
  add_times(object, timed, replica.fused_bytes(), rate);
  return object;
}

nlohmann::json update_figures(engine::Device& device, const DeviceOptions& options) {
  require_measurable(options);
  Copy copy(device, options);
  struct Way {
    Way(std::string n, const FlatOptions& f) : name(std::move(n)), replicas(f) {}
    std::string name;
    FlatReplicas replicas;
    Batches timed = {};
  };
  std::vector<std::unique_ptr<Way>> ways;
  std::vector<Batches*> all{&copy.timed};
  for (const auto update : {strategies::Update::kFused, strategies::Update::kSeparate}) {
    for (const bool in_one : {false, true}) {
      FlatOptions mine = flat(device, options, options.update_replicas);
      mine.rule = momentum();
      mine.update = update;
      if (!in_one) mine.bucket_bytes = 0;
      ways.push_back(
          std::make_unique<Way>(std::string(name(update)) + (in_one ? "_in_one" : ""), mine));
      Way& way = *ways.back();
      way.timed.most_calls = std::min(Batches::kMostCalls, way.replicas.most_calls());
      way.timed.seconds = [&way](int calls) { return way.replicas.update(calls); };
      all.push_back(&way.timed);
    }
  }
  // Compares before timing, after equally many steps of each; timing makes different numbers of
  // steps.
  std::vector<std::uint64_t> bits;
  for (const auto& way : ways) {
    for (int step = 0; step < 2; ++step) way->replicas.update(1);
    bits.push_back(way->replicas.same_weights());
  }
  engine::require(options.dtype != engine::DType::kFloat32 ||
                      std::ranges::all_of(bits, [&](auto sum) { return sum == bits[0]; }),
                  "updates inside the sums and separate ones gave other bits");
  take_turns(all, options);
  nlohmann::json object = head("update", device, options);
  const double rate = copy.rate();
  object["copy_gb_s"] = rate / 1e9;
  object["replicas"] = options.update_replicas;
  object["parameters"] = options.parameters;
  double best[2] = {HUGE_VAL, HUGE_VAL};  // fused, separate
  for (std::size_t i = 0; i < ways.size(); ++i) {
    Way& way = *ways[i];
    way.replicas.same_weights();
    const double seconds = engine::median(way.timed.samples);
    best[i / 2] = std::min(best[i / 2], seconds);
    object["ways"][way.name] = {{"buckets", way.replicas.buckets()},
                                {"calls", way.timed.calls},
                                {"microseconds", seconds * 1e6}};
    if (i < 2)
      object["ways"][way.name]["share_of_copy"] = way.replicas.fused_bytes() / seconds / rate;
  }
  object["fused_over_separate"] = best[1] / best[0];
  return object;
}

}  // namespace lockstep::bench
