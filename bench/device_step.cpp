// SPDX-License-Identifier: MIT
#include "bench/device_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "bench/roofline.h"
#include "bench/step_parts.h"
#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/data/sets.h"
#include "engine/optim/optimizer.h"
#include "engine/train/trainer.h"
#include "strategies/synchronous/synchronous.h"
#include "tools/bench/ceilings.h"

namespace lockstep::bench {
namespace {

using tools::bench::CopyCeiling;
using tools::bench::ProductCeiling;

constexpr double kStepRate = 0.01, kMomentum = 0.9;
// Threads of a replica that copy examples. The benchmark does not measure the input.
constexpr int kReaders = 4;

template <class Numbers>
auto part_of(Numbers& numbers, std::uint64_t i, std::size_t count) {
  return std::span(numbers).subspan(i * count, count);
}

// Repeats one batch of random images for all examples of a run. The numbers are ready to be copied.
class OneBatch final : public engine::Dataset {
 public:
  OneBatch(const engine::GraphSpec& graph, std::size_t batch, std::int64_t steps)
      : shape_(graph.input_shape()),
        columns_(graph.target_columns()),
        batch_(batch),
        examples_(batch * std::uint64_t(steps)) {
    const auto images =
        engine::data::random_images(shape_, graph.output_shape().elements(), batch, 1).train;
    engine::require(images->target_columns() == columns_,
                    "model {} is no classifier of images, and there are no other random data here",
                    graph.name());
    inputs_.resize(batch * shape_.elements());
    targets_.resize(batch * columns_);
    for (std::size_t i = 0; i < batch; ++i)
      images->read(i, part_of(inputs_, i, shape_.elements()), part_of(targets_, i, columns_));
  }
  std::uint64_t size() const override { return examples_; }
  engine::Shape input_shape() const override { return shape_; }
  std::size_t target_columns() const override { return columns_; }
  void read(std::uint64_t index, std::span<float> x, std::span<float> y) const override {
    std::ranges::copy(part_of(inputs_, index % batch_, shape_.elements()), x.begin());
    std::ranges::copy(part_of(targets_, index % batch_, columns_), y.begin());
  }
  std::string describe() const override { return "one batch of random images"; }
  std::uint64_t fingerprint() const override { return batch_; }

 private:
  engine::Shape shape_;
  std::size_t columns_, batch_;
  std::uint64_t examples_;
  std::vector<float> inputs_, targets_;
};

struct Groups {
  std::vector<double> rates;   // images per second
  std::vector<double> losses;  // one per group
};

// Runs the steps of `lockstep train`, without a test, a checkpoint or an order of examples.
Groups whole_steps(engine::Strategy& strategy, const engine::GraphSpec& graph,
                   const engine::Dataset& data, const DeviceStepOptions& options) {
  Groups groups;
  engine::TrainerOptions quiet;
  quiet.log = engine::Log("", engine::Log::Level::kWarning);
  engine::Trainer trainer(strategy, graph,
                          engine::optim::sgd({.rate = kStepRate, .momentum = kMomentum}), quiet);
  engine::FitOptions fit;
  fit.steps = options.warm_up + options.steps;
  fit.global_batch = options.batch;
  fit.shuffle = false;
  fit.prefetch_threads = kReaders;
  fit.steps_per_execution = options.group;
  fit.on_step = [&](const engine::StepReport& report) {
    groups.losses.push_back(report.loss);
    // Counts whole groups after the warm-up. The very first group starts with an empty pipeline.
    if (report.step - options.group + 1 < options.warm_up) return;
    if (report.examples == options.batch * std::size_t(options.group))
      groups.rates.push_back(report.examples_per_second);
  };
  trainer.fit(data, fit);
  return groups;
}

Ceilings measure_ceilings(engine::Device& device, const DeviceStepOptions& options) {
  const std::unique_ptr<engine::Ops> ops = device.ops(options.dtype, {});
  CopyCeiling copy(*ops, options.copied);
  ProductCeiling product(*ops, options.product);
  constexpr int kCalls = 10;
  std::vector<double> copies, products;
  copy.seconds(2), product.seconds(2);  // untimed: loads and selects kernels
  for (int turn = 0; turn < options.ceiling_turns; ++turn) {
    copies.push_back(copy.seconds(kCalls));
    products.push_back(product.seconds(kCalls));
  }
  engine::require(copy.holds(), "the copy is not what was copied");
  engine::require(product.finite(), "the large product is no number, or zero");
  return {copy.moved() / engine::median(copies), product.operations() / engine::median(products)};
}

// Returns the largest number of replicas on one device; they share its rates.
int most_on_a_device(std::span<engine::Device* const> devices) {
  std::ptrdiff_t most = 0;
  for (const engine::Device* device : devices)
    most = std::max(most, std::ranges::count(devices, device));
  return int(most);
}

nlohmann::json parts_of(const StepTraffic& counted, const Ceilings& ceilings,
                        const StepTimes* times) {
  nlohmann::json parts = nlohmann::json::array();
  const auto add = [&](const std::string& name, const PartTraffic* part) {
    nlohmann::json row{{"part", name}, {"milliseconds", nullptr}};
    if (times != nullptr && std::ranges::count(times->parts.order(), name) > 0)
      row["milliseconds"] = times->parts.of(name) * 1e3;
    if (part != nullptr) {
      row["bound_milliseconds"] = part->seconds(ceilings) * 1e3;
      row["mb"] = part->bytes() / 1e6;
      row["gflop"] = part->operations() / 1e9;
    }
    parts.push_back(std::move(row));
  };
  for (const PartTraffic& part : counted.parts) add(part.part, &part);
  if (times == nullptr) return parts;
  for (const std::string& name : times->parts.order())
    if (std::ranges::count(counted.parts, name, &PartTraffic::part) == 0) add(name, nullptr);
  return parts;
}

}  // namespace

nlohmann::json device_step(engine::Strategy& strategy, std::span<engine::Device* const> devices,
                           const engine::GraphSpec& graph, const DeviceStepOptions& options) {
  engine::require(options.group >= 1 && options.steps >= options.group && options.warm_up >= 0,
                  "{} steps hold no group of {}", options.steps, options.group);
  const OneBatch data(graph, options.batch,
                      options.warm_up + options.steps + 2 * options.layer_steps);
  const Groups groups = whole_steps(strategy, graph, data, options);
  engine::require(!groups.rates.empty(),
                  "{} steps behind {} hold no whole group of {}: give more of them", options.steps,
                  options.warm_up, options.group);
  engine::require(groups.losses.back() < groups.losses.front(), "the loss did not fall: {} to {}",
                  groups.losses.front(), groups.losses.back());
  std::optional<StepTimes> times;
  if (options.layer_steps > 0)
    times = take_steps(strategy, data, options.batch, kStepRate, options.warm_up + options.steps,
                       options.layer_steps, options.layer_steps);
  const int size = strategy.membership().size;
  const std::size_t rows = (options.batch + std::size_t(size) - 1) / std::size_t(size);
  const auto rule = engine::optim::sgd({.rate = kStepRate, .momentum = kMomentum}).rule;
  const StepTraffic counted = count_step(graph, options.dtype, rows, rule, size);
  const Ceilings ceilings = measure_ceilings(*devices[0], options);
  const double bound = most_on_a_device(devices) * counted.seconds(ceilings);
  const double images = double(options.batch), rate = engine::median(groups.rates);
  nlohmann::json object{{"model", graph.name()},
                        {"batch", options.batch},
                        {"replicas", size},
                        {"device", to_string(devices[0]->id())},
                        {"device_name", devices[0]->description()},
                        {"dtype", engine::name(options.dtype)},
                        {"algorithm", strategy.algorithm()},
                        {"milliseconds", images / rate * 1e3},
                        {"examples_per_second", rate},
                        {"groups", groups.rates},
                        {"group_steps", options.group},
                        {"losses", {groups.losses.front(), groups.losses.back()}}};
  object["roofline"] = {{"copy_gb_s", ceilings.bytes / 1e9},
                        {"product_tflop_s", ceilings.operations / 1e12},
                        {"mb_per_image", counted.bytes() / double(rows) / 1e6},
                        {"gflop_per_image", counted.operations() / double(rows) / 1e9},
                        {"milliseconds", bound * 1e3},
                        {"examples_per_second", images / bound},
                        {"share", rate / (images / bound)}};
  // Reports whether steps were launched as graphs: the captured parts that one replica has
  // repeated.
  if (const auto* synchronous = dynamic_cast<const strategies::Synchronous*>(&strategy))
    object["steps_as_graphs"] = synchronous->repeated();
  object["parts"] = parts_of(counted, ceilings, times ? &*times : nullptr);
  return object;
}

std::string describe(const nlohmann::json& o) {
  const auto number = [](const nlohmann::json& value) {
    return value.is_number() ? fmt::format("{:.3f}", value.get<double>()) : std::string();
  };
  std::string text =
      fmt::format("{:40} {:>10} {:>10} {:>10} {:>10}\n",
                  "part (of rank 0, with a wait around each)", "ms", "least ms", "MB", "GFLOP");
  for (const nlohmann::json& part : o["parts"]) {
    const auto of = [&](const char* key) {
      return part.contains(key) ? number(part[key]) : std::string();
    };
    text += fmt::format("{:40} {:>10} {:>10} {:>10} {:>10}\n", part["part"].get<std::string>(),
                        of("milliseconds"), of("bound_milliseconds"), of("mb"), of("gflop"));
  }
  const nlohmann::json& roof = o["roofline"];
  text += fmt::format(
      "steps as the training loop makes them: {:.3f} ms, {:.0f} images/s of {} replica{} in {} on "
      "{} (median of {} groups of {} steps)\n",
      o["milliseconds"].get<double>(), o["examples_per_second"].get<double>(),
      o["replicas"].get<int>(), o["replicas"] == 1 ? "" : "s", o["dtype"].get<std::string>(),
      o["device"].get<std::string>(), o["groups"].size(), o["group_steps"].get<int>());
  text += fmt::format(
      "measured here: a copy {:.1f} GB/s, a large product {:.2f} TFLOP/s; so each kernel at its "
      "ceiling makes a step of {:.3f} ms, {:.0f} images/s ({:.1f} MB and {:.2f} GFLOP an image)\n",
      roof["copy_gb_s"].get<double>(), roof["product_tflop_s"].get<double>(),
      roof["milliseconds"].get<double>(), roof["examples_per_second"].get<double>(),
      roof["mb_per_image"].get<double>(), roof["gflop_per_image"].get<double>());
  text += fmt::format("share of that reached: {:.1f} %\n", 100 * roof["share"].get<double>());
  return text;
}

}  // namespace lockstep::bench
