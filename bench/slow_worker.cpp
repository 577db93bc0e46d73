// SPDX-License-Identifier: MIT
// Measures the cost of one slow worker in asynchronous training with parameter servers. Runs with
// and without the slow worker are interleaved, and give the steps per second of all workers
// together. The slow worker sleeps between its steps, so that a step takes `times` as long. Workers
// and servers are threads of this process. Checked: the loss falls.
//
//   bench_slow_worker --model mlp --others 2 --times 10
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/median.h"
#include "engine/data/dataset.h"
#include "engine/data/sets.h"
#include "engine/optim/optimizer.h"
#include "engine/runtime/devices.h"
#include "engine/train/trainer.h"
#include "models/registry.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/session/local_cluster.h"
#include "tools/bench/program_flags.h"

namespace lockstep::bench {
namespace {

using engine::Clock;

struct Flags {
  std::string model = "mlp";
  int others = 2, servers = 1, turns = 5;
  double times = 10;
  std::int64_t steps = 1500;
  std::size_t batch = 128;
  bool json = false;
};

// The last worker of this strategy takes `times` as long for a step.
class WithSlowWorker : public strategies::ParameterServer {
 public:
  WithSlowWorker(strategies::ParameterServerOptions options, double times)
      : ParameterServer(std::move(options)), times_(times) {}
  std::optional<engine::Work> next(engine::Replica& replica) override {
    if (replica.rank + 1 < membership().size) return ParameterServer::next(replica);
    if (began_) std::this_thread::sleep_for((times_ - 1) * (Clock::now() - *began_));
    began_ = Clock::now();
    return ParameterServer::next(replica);
  }

 private:
  const double times_;
  std::optional<Clock::time_point> began_;  // start of the slow worker's last step
};

// One batch, repeated, so that the run is one epoch: all workers meet at the end of an epoch.
class Repeated : public engine::Dataset {
 public:
  Repeated(const engine::Dataset& batch, std::int64_t times) : batch_(batch), times_(times) {}
  std::uint64_t size() const override { return batch_.size() * std::uint64_t(times_); }
  engine::Shape input_shape() const override { return batch_.input_shape(); }
  std::size_t target_columns() const override { return batch_.target_columns(); }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    batch_.read(index % batch_.size(), input, target);
  }
  std::string describe() const override { return batch_.describe(); }
  std::uint64_t fingerprint() const override { return batch_.fingerprint(); }

 private:
  const engine::Dataset& batch_;
  const std::int64_t times_;
};

// Returns the steps per second of `workers` workers, the last of which is `times` slower.
double rate(const Flags& f, int workers, double times) {
  const auto devices = engine::host_devices();
  engine::Device& device = engine::find(devices, engine::parse_device_id("cpu"));
  const strategies::LocalCluster cluster(std::size_t(f.servers), device, engine::DType::kFloat32);
  strategies::ParameterServerOptions options;
  options.devices.assign(std::size_t(workers), &device);
  options.servers = cluster.servers();
  options.connect = [&](std::size_t server) { return cluster.connect(server); };
  options.updates.warm_up = 0;
  WithSlowWorker strategy(options, times);
  const engine::GraphSpec graph = models::build(f.model);
  const auto data =
      engine::data::random_images(graph.input_shape(), graph.output_shape().elements(), f.batch, 1)
          .train;
  engine::Trainer trainer(strategy, graph, engine::optim::sgd({.rate = 0.01, .momentum = 0.9}));
  engine::FitOptions fit;
  fit.steps = f.steps;
  fit.global_batch = f.batch;
  std::vector<double> losses;
  fit.on_step = [&](const engine::StepReport& report) { losses.push_back(report.loss); };
  const engine::History history = trainer.fit(Repeated(*data, f.steps), fit);
  engine::require(history.loss < losses.front(), "the loss did not fall: {} to {}", losses.front(),
                  history.loss);
  return double(history.steps) / history.seconds;
}

int run(const Flags& f) {
  std::vector<double> alone, together;
  for (int turn = 0; turn < f.turns; ++turn) {
    alone.push_back(rate(f, f.others, 1));
    together.push_back(rate(f, f.others + 1, f.times));
  }
  const double ratio = engine::median(together) / engine::median(alone);
  if (f.json) {
    const nlohmann::json object{{"model", f.model},
                                {"others", f.others},
                                {"times", f.times},
                                {"others_steps_per_second", engine::median(alone)},
                                {"steps_per_second", engine::median(together)},
                                {"ratio", ratio}};
    fmt::print("{}\n", object.dump());
    return 0;
  }
  fmt::print(
      "{}, medians of {} turns: {} workers {:.1f} steps/s, with one that is {:g} times slower "
      "{:.1f}: {:.3f} times\n",
      f.model, f.turns, f.others, engine::median(alone), f.times, engine::median(together), ratio);
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using lockstep::tools::bench::NumberRange, lockstep::tools::bench::ProgramFlags;
  lockstep::bench::Flags f;
  ProgramFlags flags("bench_slow_worker",
                     "Asynchronous training with one slow worker, and without it.");
  flags.option("--model", f.model, "one of: " + lockstep::models::list());
  flags.option("--others", f.others, "workers that are not slow", NumberRange{1, 64});
  flags.option("--servers", f.servers, {}, NumberRange{1, 64});
  flags.option("--times", f.times, "of the slow worker's step to another's", NumberRange{1, 1000});
  flags.option("--steps", f.steps, "of all workers together", NumberRange{20, 1000000});
  flags.option("--batch", f.batch, {}, NumberRange{1, 100000});
  flags.option("--turns", f.turns, {}, NumberRange{1, 1000});
  flags.flag("--json", f.json, "one JSON object");
  return flags.run(argc, argv, [&] { return lockstep::bench::run(f); });
}
