// SPDX-License-Identifier: MIT
#include "bench/device_figures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "bench/ceilings.h"
#include "bench/flat_replicas.h"
#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/optim/optimizer.h"

namespace lockstep::bench {
namespace {

constexpr int kFirstCalls = 3;    // untimed: the first ones load kernels and touch memory
constexpr int kMostCalls = 1000;  // of a batch

// Something that is timed: seconds of one of so many calls, and the samples of its turns.
struct Timed {
  std::function<double(int)> seconds;
  int most_calls = kMostCalls;
  int calls = 1;
  std::vector<double> samples = {};
};

// All take turns, so that a device that grows slower or faster does so for all of them.
void take_turns(const std::vector<Timed*>& all, const DeviceOptions& options) {
  for (Timed* timed : all) {
    timed->seconds(std::min(kFirstCalls, timed->most_calls));
    const double once = timed->seconds(std::min(kFirstCalls, timed->most_calls));
    const double calls = std::ceil(options.batch_seconds / std::max(once, 1e-9));
    timed->calls = int(std::clamp(calls, 1.0, double(timed->most_calls)));
  }
  for (int turn = 0; turn < options.turns; ++turn)
    for (Timed* timed : all) timed->samples.push_back(timed->seconds(timed->calls));
}

// The copy that the others are held against.
struct Copy {
  Copy(engine::Device& device, const DeviceOptions& options)
      : ops(device.ops(options.dtype, {})), ceiling(*ops, options.copied) {
    timed.seconds = [this](int calls) { return ceiling.seconds(calls); };
  }
  // Bytes a second, read and written.
  double rate() const {
    engine::require(ceiling.holds(), "the copy is not what was copied");
    return ceiling.moved() / engine::median(timed.samples);
  }
  std::unique_ptr<engine::Ops> ops;
  CopyCeiling ceiling;
  Timed timed = {};
};

void require_measurable(const DeviceOptions& options) {
  engine::require(options.turns >= 1 && options.batch_seconds > 0,
                  "at least one turn, of some time, is needed");
  engine::require(options.bytes >= 4096 && options.copied >= 4096,
                  "sums and copies of less than 4096 bytes tell nothing of a device's memory");
  engine::require(options.parameters >= 1024, "{} parameters: at least 1024 are needed",
                  options.parameters);
}

nlohmann::json head(const char* bench, engine::Device& device, const DeviceOptions& options) {
  return {{"bench", bench},
          {"device", to_string(device.id())},
          {"dtype", engine::name(options.dtype)},
          {"turns", options.turns}};
}

void add_times(nlohmann::json& row, const Timed& timed, double bytes, double copy_rate) {
  const double seconds = engine::median(timed.samples);
  row["calls"] = timed.calls;
  row["microseconds"] = seconds * 1e6;
  row["gb_s"] = bytes / seconds / 1e9;
  row["share_of_copy"] = bytes / seconds / copy_rate;
}

FlatOptions flat(engine::Device& device, const DeviceOptions& options, int replicas,
                 std::size_t elements) {
  FlatOptions flat;
  flat.device = &device;
  flat.replicas = replicas;
  flat.elements = elements;
  flat.dtype = options.dtype;
  flat.update = "apart";
  flat.bucket_bytes = (elements + engine::kBlock) * sizeof(double);  // more than there is: one
  return flat;
}

engine::UpdateRule momentum() {
  return engine::optim::sgd({.rate = 0.01, .momentum = 0.9}).rule;
}

}  // namespace

nlohmann::json all_reduce_figures(engine::Device& device, const DeviceOptions& options) {
  require_measurable(options);
  Copy copy(device, options);
  struct Way {
    explicit Way(const FlatOptions& f) : replicas(f) {}
    FlatReplicas replicas;
    Timed timed = {};
    std::uint64_t checksum = 0;
  };
  std::vector<std::unique_ptr<Way>> ways;
  std::vector<Timed*> all{&copy.timed};
  for (const int replicas : options.replicas) {
    const std::size_t elements = options.bytes / size_of(options.dtype);
    ways.push_back(std::make_unique<Way>(flat(device, options, replicas, elements)));
    Way& way = *ways.back();
    way.replicas.check_sums();
    way.checksum = way.replicas.same_gradients();
    way.timed.most_calls = std::min(kMostCalls, way.replicas.most_calls());
    way.timed.seconds = [&way](int calls) { return way.replicas.all_reduce(calls); };
    all.push_back(&way.timed);
  }
  take_turns(all, options);
  nlohmann::json object = head("all_reduce", device, options);
  const double rate = copy.rate();
  object["copy_gb_s"] = rate / 1e9;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    Way& way = *ways[i];
    way.replicas.same_gradients();  // what was timed
    way.replicas.check_sums();      // and what comes behind it
    engine::require(way.replicas.same_gradients() == way.checksum,
                    "the same all-reduce gave other bits the second time");
    nlohmann::json row{{"replicas", options.replicas[i]},
                       {"mib", double(options.bytes) / 0x1p20},
                       {"algorithm", way.replicas.algorithm()}};
    add_times(row, way.timed, way.replicas.all_reduce_bytes(), rate);
    object["all_reduces"].push_back(std::move(row));
  }
  return object;
}

nlohmann::json optimizer_figures(engine::Device& device, const DeviceOptions& options) {
  require_measurable(options);
  Copy copy(device, options);
  FlatOptions alone = flat(device, options, 1, options.parameters);
  alone.rule = momentum();
  alone.update = "fused";
  FlatReplicas replica(alone);
  Timed timed{.seconds = [&](int calls) { return replica.update(calls); }};
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
    Timed timed = {};
  };
  std::vector<std::unique_ptr<Way>> ways;
  std::vector<Timed*> all{&copy.timed};
  for (const char* update : {"fused", "apart"}) {
    for (const bool in_one : {false, true}) {
      FlatOptions mine = flat(device, options, options.update_replicas, options.parameters);
      mine.rule = momentum();
      mine.update = update;
      if (!in_one) mine.bucket_bytes = 0;
      ways.push_back(std::make_unique<Way>(std::string(update) + (in_one ? "_in_one" : ""), mine));
      Way& way = *ways.back();
      way.timed.most_calls = std::min(kMostCalls, way.replicas.most_calls());
      way.timed.seconds = [&way](int calls) { return way.replicas.update(calls); };
      all.push_back(&way.timed);
    }
  }
  // Before they are timed, of as many steps each: later ones make more or fewer.
  std::vector<std::uint64_t> bits;
  for (const auto& way : ways) {
    for (int step = 0; step < 2; ++step) way->replicas.update(1);
    bits.push_back(way->replicas.same_weights());
  }
  engine::require(options.dtype != engine::DType::kFloat32 ||
                      std::ranges::all_of(bits, [&](auto sum) { return sum == bits[0]; }),
                  "updates inside the sums and apart from them gave other bits");
  take_turns(all, options);
  nlohmann::json object = head("update", device, options);
  const double rate = copy.rate();
  object["copy_gb_s"] = rate / 1e9;
  object["replicas"] = options.update_replicas;
  object["parameters"] = options.parameters;
  double best[2] = {HUGE_VAL, HUGE_VAL};  // fused, apart
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
  object["fused_over_apart"] = best[1] / best[0];
  return object;
}

}  // namespace lockstep::bench
