// SPDX-License-Identifier: MIT
// Measures the parts of a training step: each layer forward and backward, the loss, the input, and
// the exposed time of communication and update. Times are medians over steps of the first replica
// of this process, on one batch of random images kept in memory. Checked: the loss falls. On a GPU,
// whose kernels are queued, steps are timed as in the training loop, and layers in separate steps.
// Both are compared with the bounds of the GPU's memory and products (device_step.h).
//
// GF/s and % of peak count the operations of the direct method; Winograd's needs fewer and can
// exceed 100 %. "communication and update, exposed" is the time in calls of the strategy, with
// checksums of mirrors; "the rest" is outside of all parts, under 1 % on an idle machine.
// cpu_milliseconds in JSON is the processor time of a step, for use on a busy machine.
//
//   bench_step --model mnist_cnn --replicas 2 --batch 128
//   bench_step --model resnet50 --device cuda:0 --batch 256
//   mpirun -n 2 bench_step --strategy collective_all_reduce --model mlp --batch 256
#include <fmt/core.h>
#include <sys/resource.h>

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "bench/bucket_model.h"
#include "bench/device_step.h"
#include "bench/step_parts.h"
#include "collectives/algorithms/registry.h"
#include "collectives/cost/cost_cache.h"
#include "collectives/cost/size_rules.h"
#include "engine/base/median.h"
#include "engine/cpu/peak.h"
#include "engine/data/sets.h"
#include "engine/optim/optimizer.h"
#include "models/registry.h"
#include "strategies/session/factories.h"
#include "strategies/synchronous/synchronous.h"
#include "tools/bench/program_flags.h"

namespace lockstep::bench {
namespace {

struct Flags {
  std::string model = "mnist_cnn", strategy = "mirrored", algorithm = "auto", update = "auto",
              kernels = "auto", device = "cpu", dtype = {};
  std::vector<std::string> devices = {};
  int replicas = 1, threads = 1, steps = 60, warm_up = 10, group = 10, layer_steps = 10;
  int product = 8192, copy_mib = 256;
  std::size_t batch = 128;
  bool json = false, recompute = false, whole = false;
};

// Returns the peak memory of this process so far, in MiB.
double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) / 1024;
}

// Describes the step by the bucket model, between hosts. Computing and sums with the planner's
// predicted times do not slow each other.
struct Modelled {
  double communication = 0;  // seconds of all buckets, one after the other
  double here = 0, best = 0;
  std::size_t buckets = 0, best_buckets = 0;
  double hidden_percent(double step, double compute) const {
    return 100 * (1 - (step - compute) / communication);
  }
};
Modelled modelled(const strategies::Synchronous& strategy, const std::string& algorithm,
                  const ReadyTimes& ready, double compute, std::size_t width) {
  const auto& design = strategy.step();
  const auto choices = collectives::plan_all_reduce(
      strategy.topology(), collectives::all_reduce_algorithms(),
      collectives::parse_size_rules(algorithm), collectives::planned_sizes());
  const BucketCost cost = [&](std::size_t bytes) { return choices.choose(bytes).seconds; };
  const auto buckets = ready.buckets(design.buckets, width);
  const auto best = best_buckets(ready.units(width), cost);
  Modelled found;
  found.buckets = buckets.size(), found.best_buckets = best.buckets.size();
  for (const auto& bucket : buckets) found.communication += cost(bucket.bytes);
  found.here = std::max(compute, end_of_buckets(buckets, cost));
  found.best = std::max(compute, best.seconds);
  return found;
}

// Returns the operations of the direct method in one step, by part. A multiplication counts a
// product and a sum, once forward and twice backward, or once if the gradient of the input is not
// needed. Methods with fewer operations can exceed the peak.
std::map<std::string, double> operations(const engine::GraphSpec& graph, double rows) {
  std::map<std::string, double> by_part;
  for (const engine::GraphSpec::Node& node : graph.nodes()) {
    std::vector<engine::Shape> inputs;
    for (const auto value : node.inputs) inputs.push_back(graph.shape(value));
    const double once = 2 * rows * node.layer->work(inputs);
    const bool first = node.inputs[0].index == 0;
    by_part["forward  " + node.name] = once;
    by_part["backward " + node.name] = first ? once : 2 * once;
  }
  return by_part;
}

int run_on_devices(const Flags& f, engine::Strategy& strategy,
                   const std::vector<engine::Device*>& devices, engine::DType dtype) {
  engine::require(strategy.membership().size == int(devices.size()),
                  "steps on devices are measured in one process");
  DeviceStepOptions options;
  options.batch = f.batch;
  options.steps = f.steps - f.warm_up;
  options.warm_up = f.warm_up;
  options.group = f.group;
  options.layer_steps = f.layer_steps;
  options.product = std::size_t(f.product);
  options.copied = std::size_t(f.copy_mib) << 20;
  options.dtype = dtype;
  const nlohmann::json object = device_step(strategy, devices, models::build(f.model), options);
  fmt::print(stderr, "{}\n", strategy.explain());
  fmt::print("{}{}", f.json ? object.dump() : describe(object), f.json ? "\n" : "");
  return 0;
}

strategies::StrategyOptions options_of(const Flags& f, strategies::Session& session) {
  strategies::StrategyOptions options;
  options.replicas = f.replicas;
  options.device = f.device;
  options.devices = f.devices;
  options.threads = f.threads;
  options.step.algorithm = f.algorithm;
  options.step.update = strategies::update_of(f.update);
  options.step.kernels = engine::kernels_of(f.kernels);
  if (!f.dtype.empty()) options.step.dtype = engine::dtype_of(f.dtype);
  options.step.recompute = f.recompute;
  options.measured = true;
  return strategies::with_devices(session, options, strategies::share_of_gpus(session, options));
}

nlohmann::json communication(const Modelled& model, double step, double computing) {
  return {{"computing_ms", computing * 1e3},
          {"alone_ms", model.communication * 1e3},
          {"hidden_percent", model.hidden_percent(step, computing)},
          {"buckets", model.buckets},
          {"model_ms", model.here * 1e3},
          {"best_buckets", model.best_buckets},
          {"best_model_ms", model.best * 1e3}};
}

std::string sentence(const Modelled& model, double step, double computing) {
  return fmt::format(
      "computing {:.1f} ms; sums of gradients alone {:.1f} ms, {:.0f} % of them hidden; by "
      "the bucket model the step takes {:.1f} ms with {} bucket{}, {:.1f} ms with the "
      "best {}",
      computing * 1e3, model.communication * 1e3, model.hidden_percent(step, computing),
      model.here * 1e3, model.buckets, model.buckets == 1 ? "" : "s", model.best * 1e3,
      model.best_buckets);
}

nlohmann::json figures(const Flags& f, const engine::Strategy& strategy, const StepTimes& times,
                       double peak_memory) {
  const double step = engine::median(times.whole);
  return {{"model", f.model},
          {"batch", f.batch},
          {"replicas", strategy.membership().size},
          {"algorithm", strategy.algorithm()},
          {"milliseconds", step * 1e3},
          {"examples_per_second", double(f.batch) / step},
          {"cpu_milliseconds", engine::median(times.processor) * 1e3},
          {"peak_mib", peak_memory}};
}

int run(const Flags& f, int argc, char** argv) {
  engine::require(f.warm_up >= 0 && f.steps > f.warm_up, "--steps {} must be above --warm-up {}",
                  f.steps, f.warm_up);
  strategies::SessionOptions session_options;
  session_options.gpus.plan_cache = collectives::cache_folder();
  strategies::Session session(argc, argv, session_options);
  const strategies::StrategyOptions options = options_of(f, session);
  const std::vector<engine::Device*> devices = strategies::devices_of(session, options);
  const engine::DType dtype = options.step.dtype.value_or(devices[0]->default_dtype());
  const auto strategy = strategies::make_strategy(f.strategy, session, options);
  if (f.whole || !devices[0]->ops(dtype, {})->in_host_memory())
    return run_on_devices(f, *strategy, devices, dtype);
  const engine::GraphSpec graph = models::build(f.model);
  const auto rule = engine::optim::sgd({.rate = 0.01, .momentum = 0.9});
  const auto data =
      engine::data::random_images(graph.input_shape(), graph.output_shape().elements(), f.batch, 1)
          .train;
  const engine::Membership me = strategy->membership();
  strategy->open(graph, rule.rule, {f.batch, 1, 1, {}});
  const StepTimes times =
      take_steps(*strategy, *data, f.batch, rule.rate, 0, f.warm_up, f.steps - f.warm_up);
  const Parts& parts = times.parts;
  const auto& [losses, computing] = std::tie(times.losses, times.computing);
  engine::require(losses.back() < losses.front(), "the loss did not fall: {} to {}", losses.front(),
                  losses.back());
  if (!me.chief) return 0;
  const double peak_memory = peak_mib();
  const double step = engine::median(times.whole);
  const double rate = double(f.batch) / step;
  nlohmann::json object = figures(f, *strategy, times, peak_memory);
  fmt::print(stderr, "{}\n", strategy->explain());
  const engine::cpu::Peak peak = engine::cpu::measure_peak();
  const double core = peak.flops * f.threads;
  const auto counted = operations(graph, double(f.batch) / me.size);
  object["peak_gflops"] = core / 1e9;
  object["copy_gb_s"] = peak.bytes / 1e9;
  if (!f.json) {
    fmt::print("{:40} {:>10} {:>7} {:>8} {:>10}\n", "part (medians of rank 0)", "ms", "%", "GF/s",
               "% of peak");
  }
  std::optional<Modelled> model;
  const auto* synchronous = dynamic_cast<const strategies::Synchronous*>(strategy.get());
  if (synchronous != nullptr && synchronous->topology().hosts.size() > 1) {
    model = modelled(*synchronous, f.algorithm, times.ready, engine::median(computing),
                     engine::size_of(dtype));
    object["communication"] = communication(*model, step, engine::median(computing));
  }
  double all = 0;
  for (const std::string& part : parts.order()) {
    const double seconds = parts.of(part);
    object["parts"][part] = seconds * 1e3;
    if (f.json) continue;
    fmt::print("{:40} {:10.3f} {:7.1f}", part, seconds * 1e3, 100 * seconds / step);
    const auto found = counted.find(part);
    if (found == counted.end() || found->second == 0) {
      fmt::print("\n");
      continue;
    }
    all += found->second;
    fmt::print(" {:8.0f} {:10.0f}\n", found->second / seconds / 1e9,
               100 * found->second / seconds / core);
  }
  object["parts"]["the rest"] = parts.rest() * 1e3;
  if (f.json) {
    fmt::print("{}\n", object.dump());
  } else {
    fmt::print("{:40} {:10.3f} {:7.1f}\n", "the rest", parts.rest() * 1e3,
               100 * parts.rest() / step);
    fmt::print("{:40} {:10.3f} {:7} {:8.0f} {:10.0f}    {:.0f} images/s of {} replica{}\n", "step",
               step * 1e3, "", all / step / 1e9, 100 * all / step / core, rate, me.size,
               me.size == 1 ? "" : "s");
    if (model) fmt::print("{}\n", sentence(*model, step, engine::median(computing)));
    fmt::print("the most memory that this process had: {:.0f} MiB\n", peak_memory);
    fmt::print("the peak, from registers: {:.0f} GF/s a replica; a copy of memory: {:.0f} GB/s\n",
               core / 1e9, peak.bytes / 1e9);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using lockstep::tools::bench::NumberRange, lockstep::tools::bench::ProgramFlags;
  lockstep::bench::Flags f;
  ProgramFlags flags("bench_step", "Where a training step's time goes.");
  flags.option("--model", f.model);
  flags.option("--strategy", f.strategy);
  flags.option("--algorithm", f.algorithm);
  flags.option("--update", f.update);
  flags.option("--kernels", f.kernels);
  flags.option("--dtype", f.dtype, "of storage: float32, bfloat16; else the device's");
  flags.option("--device", f.device, "cpu, cuda:0: of all replicas");
  flags.list("--devices", f.devices, "of each replica: cuda:0,cuda:0");
  flags.option("--replicas", f.replicas, "of this process");
  flags.option("--threads", f.threads, "of a replica");
  flags.option("--steps", f.steps);
  flags.option("--warm-up", f.warm_up, "of the steps, untimed");
  flags.flag("--whole", f.whole, "as on a GPU: steps of the training loop, layers apart");
  flags.option("--group", f.group, "steps that are timed together there");
  flags.option("--layer-steps", f.layer_steps, "with a wait around each layer, there",
               NumberRange{0, 1e9});
  flags.option("--product", f.product, "extent of the large product's matrices, there",
               NumberRange{16, 65536});
  flags.option("--copy-mib", f.copy_mib, "of the copy, there", NumberRange{1, 65536});
  flags.flag("--recompute", f.recompute, "blocks of the model again in backward");
  flags.option("--batch", f.batch, "over all replicas");
  flags.flag("--json", f.json, "one JSON object instead of a table");
  return flags.run(argc, argv, [&] { return lockstep::bench::run(f, argc, argv); });
}
