// SPDX-License-Identifier: MIT
// Where a training step's time goes: each layer forward and backward, the loss, the input, what
// communication and update leave exposed. Medians over steps of the first replica of this process,
// on one batch of random images kept in memory. Checked: the loss falls.
//
//   bench_step --model mnist_cnn --replicas 2 --batch 128
//   mpirun -n 2 bench_step --strategy collective_all_reduce --model mlp --batch 256
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "collectives/registry.h"
#include "collectives/size_rules.h"
#include "engine/cpu/peak.h"
#include "engine/data/sets.h"
#include "engine/optim/optimizer.h"
#include "engine/train/staging.h"
#include "models/registry.h"
#include "strategies/bucket_model.h"
#include "strategies/session/factories.h"
#include "strategies/synchronous.h"

namespace lockstep::bench {
namespace {

struct Flags {
  std::string model = "mnist_cnn", strategy = "mirrored", algorithm = "auto", update = "auto",
              kernels = "auto", dtype = "float32";
  int replicas = 1, threads = 1, steps = 60, warm_up = 10;
  std::size_t batch = 128;
  bool json = false, recompute = false;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_since(engine::Clock::time_point begin) {
  return std::chrono::duration<double>(engine::Clock::now() - begin).count();
}

// The most memory that this process had so far, in MiB.
double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) / 1024;
}

// What all threads of this process have had of processors, in seconds.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) / 1e9;
}

// Parts in the order in which they were first seen, a sample a step each.
class Parts : public engine::Observer {
 public:
  void add(const std::string& part, double seconds) {
    if (now_.find(part) == now_.end()) order_.push_back(part);
    now_[part] += seconds;
  }
  void layer(const std::string& name, Pass pass, engine::Clock::time_point begin,
             engine::Clock::time_point end, engine::Tensor) override {
    add(fmt::format("{:8} {}", pass == Pass::kForward ? "forward" : "backward", name),
        std::chrono::duration<double>(end - begin).count());
  }
  // `whole`: seconds of the step; what no part has of them is `the rest`.
  void end_step(bool keep, double whole) {
    for (auto& [part, seconds] : now_) {
      if (keep) samples_[part].push_back(seconds);
      whole -= seconds;
      seconds = 0;
    }
    if (keep) rest_.push_back(whole);
  }
  const std::vector<std::string>& order() const { return order_; }
  double of(const std::string& part) const { return median(samples_.at(part)); }
  double rest() const { return median(rest_); }

 private:
  std::vector<std::string> order_;
  std::map<std::string, double> now_;
  std::map<std::string, std::vector<double>> samples_;
  std::vector<double> rest_;
};

// When each gradient is final, in seconds of computing since the step began: what the strategy's
// calls take is not counted.
class ReadyTimes {
 public:
  void begin_step() { next_ = 0; }
  void add(engine::Range range, double seconds, bool keep) {
    if (next_ == ends_.size()) ends_.push_back(range.end), samples_.emplace_back();
    if (keep) samples_[next_].push_back(seconds);
    ++next_;
  }
  // A layer's gradients each.
  std::vector<strategies::ReadyUnit> units(std::size_t width) const {
    std::vector<strategies::ReadyUnit> units;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      units.push_back({median(samples_[i]), (ends_[i] - begin) * width});
      begin = ends_[i];
    }
    return units;
  }
  // Those of the strategy.
  std::vector<strategies::ReadyUnit> buckets(const std::vector<engine::Range>& cut,
                                             std::size_t width) const {
    std::vector<strategies::ReadyUnit> units;
    for (const engine::Range& bucket : cut) {
      const auto at = std::lower_bound(ends_.begin(), ends_.end(), bucket.end) - ends_.begin();
      units.push_back({median(samples_[std::size_t(at)]), bucket.size() * width});
    }
    return units;
  }

 private:
  std::size_t next_ = 0;
  std::vector<std::size_t> ends_;
  std::vector<std::vector<double>> samples_;
};

// What the step would take by the bucket model, between hosts: of computing and of sums that take
// what the planner says, none slows the other.
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
  const strategies::BucketCost cost = [&](std::size_t bytes) {
    return choices.choose(bytes).seconds;
  };
  const auto buckets = ready.buckets(design.buckets, width);
  const auto best = strategies::best_buckets(ready.units(width), cost);
  Modelled found;
  found.buckets = buckets.size(), found.best_buckets = best.buckets.size();
  for (const auto& bucket : buckets) found.communication += cost(bucket.bytes);
  found.here = std::max(compute, strategies::end_of_buckets(buckets, cost));
  found.best = std::max(compute, best.seconds);
  return found;
}

// Operations of the direct method in one step, by part: a product and a sum for each
// multiplication, once forward and twice backward, or once where nobody wants the gradient of the
// input. Methods that do with fewer can come out above the peak.
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

int run(const Flags& f, int argc, char** argv) {
  engine::require(f.warm_up >= 0 && f.steps > f.warm_up, "--steps {} must be above --warm-up {}",
                  f.steps, f.warm_up);
  strategies::Session session(argc, argv);
  strategies::StrategyOptions options;
  options.replicas = f.replicas;
  options.threads = f.threads;
  options.algorithm = f.algorithm;
  options.update = f.update;
  options.kernels = engine::kernels_of(f.kernels);
  options.dtype = engine::dtype_of(f.dtype);
  options.recompute = f.recompute;
  options.measured = true;
  const auto strategy = strategies::make_strategy(f.strategy, session, options);
  const engine::GraphSpec graph = models::build(f.model);
  const auto rule = engine::optim::sgd({.rate = 0.01, .momentum = 0.9});
  const auto data =
      engine::data::random_images(graph.input_shape(), graph.output_shape().elements(), f.batch, 1)
          .train;
  const engine::Membership me = strategy->membership();
  strategy->open(graph, rule.rule, {f.batch, 1, 1, {}});
  strategy->deal({data->size(), f.batch, 0, f.steps, {}, true});
  Parts parts;
  ReadyTimes ready_times;
  std::vector<double> whole, computing, processor, losses;
  strategy->run([&](engine::Replica& r) {
    const bool mine = r.rank == me.rank;
    engine::Pipeline pipeline(*data, {.shuffle = false, .in_place = true});
    double exposed = 0;  // inside the strategy's calls
    bool keep = false;
    engine::Clock::time_point started;
    auto timed = [&exposed](auto&& call) {
      const auto begin = engine::Clock::now();
      call();
      exposed += seconds_since(begin);
    };
    const engine::Graph::Hook before = [&](engine::Range x) {
      timed([&] { strategy->before_forward(r, x); });
    };
    const engine::Graph::Hook ready = [&](engine::Range x) {
      if (mine) ready_times.add(x, seconds_since(started) - exposed, keep);
      timed([&] { strategy->gradient_ready(r, x); });
    };
    if (mine) r.graph.observe(&parts);
    while (const auto work = strategy->next(r)) {
      exposed = 0;
      keep = work->step >= f.warm_up;
      if (mine) ready_times.begin_step();
      started = engine::Clock::now();
      const double processor_begin = processor_seconds();
      pipeline.request(work->epoch, work->mine);
      engine::stage(r, pipeline.take(), work->step, work->whole, rule.rate);
      const double input = seconds_since(started);
      r.graph.forward(*r.context, before);
      const auto loss_begin = engine::Clock::now();
      r.graph.evaluate_loss(*r.context, true);
      const double loss = r.context->ops->batch_sum(r.context->state, r.graph.losses());
      const double loss_seconds = seconds_since(loss_begin);
      r.graph.backward(*r.context, false, ready);
      timed([&] { strategy->finish(r); });
      const double seconds = seconds_since(started);
      if (!mine) continue;
      parts.add("input", input);
      parts.add("loss", loss_seconds);
      parts.add("communication and update, exposed", exposed);
      parts.end_step(keep, seconds);
      computing.push_back(seconds - exposed);
      whole.push_back(seconds);
      processor.push_back(processor_seconds() - processor_begin);
      losses.push_back(loss / double(std::max<std::int64_t>(1, r.state.examples)));
    }
    r.graph.observe(nullptr);
  });
  for (auto* times : {&whole, &computing, &processor})
    times->erase(times->begin(), times->begin() + f.warm_up);
  engine::require(losses.back() < losses.front(), "the loss did not fall: {} to {}", losses.front(),
                  losses.back());
  if (!me.chief) return 0;
  const double peak_memory = peak_mib();
  const double step = median(whole);
  const double rate = double(f.batch) / step;
  nlohmann::json object{{"model", f.model},
                        {"batch", f.batch},
                        {"replicas", me.size},
                        {"algorithm", strategy->algorithm()},
                        {"milliseconds", step * 1e3},
                        {"images_per_second", rate},
                        {"cpu_milliseconds", median(processor) * 1e3},
                        {"peak_mib", peak_memory}};
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
    model = modelled(*synchronous, f.algorithm, ready_times, median(computing),
                     engine::size_of(*options.dtype));
    object["communication"] = {{"computing_ms", median(computing) * 1e3},
                               {"alone_ms", model->communication * 1e3},
                               {"hidden_percent", model->hidden_percent(step, median(computing))},
                               {"buckets", model->buckets},
                               {"model_ms", model->here * 1e3},
                               {"best_buckets", model->best_buckets},
                               {"best_model_ms", model->best * 1e3}};
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
    if (model)
      fmt::print(
          "computing {:.1f} ms; sums of gradients alone {:.1f} ms, {:.0f} % of them hidden; by "
          "the bucket model the step takes {:.1f} ms with {} bucket{}, {:.1f} ms with the "
          "best {}\n",
          median(computing) * 1e3, model->communication * 1e3,
          model->hidden_percent(step, median(computing)), model->here * 1e3, model->buckets,
          model->buckets == 1 ? "" : "s", model->best * 1e3, model->best_buckets);
    fmt::print("the most memory that this process had: {:.0f} MiB\n", peak_memory);
    fmt::print("the peak, from registers: {:.0f} GF/s a replica; a copy of memory: {:.0f} GB/s\n",
               core / 1e9, peak.bytes / 1e9);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Flags f;
  CLI::App app{"Where a training step's time goes.", "bench_step"};
  app.add_option("--model", f.model)->capture_default_str();
  app.add_option("--strategy", f.strategy)->capture_default_str();
  app.add_option("--algorithm", f.algorithm)->capture_default_str();
  app.add_option("--update", f.update)->capture_default_str();
  app.add_option("--kernels", f.kernels)->capture_default_str();
  app.add_option("--dtype", f.dtype, "of storage: float32 or bfloat16")->capture_default_str();
  app.add_option("--replicas", f.replicas, "of this process")->capture_default_str();
  app.add_option("--threads", f.threads, "of a replica")->capture_default_str();
  app.add_option("--steps", f.steps)->capture_default_str();
  app.add_option("--warm-up", f.warm_up, "of the steps, untimed")->capture_default_str();
  app.add_flag("--recompute", f.recompute, "blocks of the model again in backward");
  app.add_option("--batch", f.batch, "over all replicas")->capture_default_str();
  app.add_flag("--json", f.json, "one JSON object instead of a table");
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::bench::run(f, argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_step: {}\n", error.what());
    return 1;
  }
}
