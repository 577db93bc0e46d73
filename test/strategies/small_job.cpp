// SPDX-License-Identifier: MIT
#include "test/strategies/small_job.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>

#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "engine/train/job_trace.h"
#include "test/strategies/inspection.h"
#include "test/strategies/notebook.h"

namespace lockstep::test {
namespace {

using engine::Tensor;

template <class T>  // element type; sums over replicas are float64
void subtract_mean(engine::Context& context, int point, Tensor x, Tensor y) {
  const engine::StepState& state = *context.state;
  const std::size_t columns = x.columns(), rows = std::size_t(state.examples);
  double* sums = reinterpret_cast<double*>(context.exchange(point));
  for (std::size_t c = 0; c < columns; ++c) {
    sums[c] = 0;
    for (std::size_t r = 0; r < rows; ++r) sums[c] += double(x.as<T>()[r * columns + c]);
  }
  context.reduce(point);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      y.as<T>()[r * columns + c] =
          T(double(x.as<T>()[r * columns + c]) - sums[c] * state.inverse_examples);
    }
  }
}

class Centre : public engine::Layer {
 public:
  std::string describe() const override { return "centre"; }
  engine::Shape output_shape(std::span<const engine::Shape> inputs) const override {
    return inputs[0];
  }
  std::vector<engine::ReductionSpec> reductions(
      std::span<const engine::Shape> inputs) const override {
    return {{"forward", inputs[0].elements()}, {"backward", inputs[0].elements()}};
  }
  void forward(engine::Context& context, const engine::ForwardArguments& a) const override {
    run(context, a.point, a.x[0], a.y);
  }
  void backward(engine::Context& context, const engine::BackwardArguments& a) const override {
    if (a.dx[0]) run(context, a.point + 1, a.dy, a.dx[0]);
  }

 private:
  static void run(engine::Context& context, int point, Tensor x, Tensor y) {
    perform(context, [&context, point, x, y] {
      if (x.dtype == engine::DType::kFloat64) {
        subtract_mean<double>(context, point, x, y);
      } else {
        subtract_mean<float>(context, point, x, y);
      }
    });
  }
};

class ScaleAndShift : public engine::Layer {
 public:
  std::string describe() const override { return "scale_and_shift"; }
  engine::Shape output_shape(std::span<const engine::Shape> inputs) const override {
    return inputs[0];
  }
  std::vector<engine::ParameterSpec> parameters(
      std::span<const engine::Shape> inputs) const override {
    return {{"scale", inputs[0], engine::constant(1), engine::Group::kNorm},
            {"shift", inputs[0], engine::constant(0), engine::Group::kNorm}};
  }
  void forward(engine::Context& context, const engine::ForwardArguments& a) const override {
    perform(context, [&context, a] {
      typed(a.y, [&](auto zero) { all<decltype(zero)>(*context.state, a); });
    });
  }
  void backward(engine::Context& context, const engine::BackwardArguments& a) const override {
    perform(context, [&context, a] {
      typed(a.dy, [&](auto zero) { all<decltype(zero)>(*context.state, a); });
    });
  }

 private:
  template <class Body>
  static void typed(const Tensor& tensor, Body body) {
    tensor.dtype == engine::DType::kFloat64 ? body(double()) : body(float());
  }
  template <class T>
  static void all(const engine::StepState& state, const engine::ForwardArguments& a) {
    const std::size_t columns = a.y.columns();
    for (std::size_t i = 0; i < std::size_t(state.examples) * columns; ++i)
      a.y.as<T>()[i] =
          a.w[0].as<T>()[i % columns] * a.x[0].as<T>()[i] + a.w[1].as<T>()[i % columns];
  }
  template <class T>
  static void all(const engine::StepState& state, const engine::BackwardArguments& a) {
    const std::size_t columns = a.dy.columns(), rows = std::size_t(state.examples);
    for (std::size_t c = 0; c < columns; ++c) {
      T scale = 0, shift = 0;
      for (std::size_t i = c; i < rows * columns; i += columns) {
        scale += a.dy.as<T>()[i] * a.x[0].as<T>()[i];
        shift += a.dy.as<T>()[i];
      }
      T* const dw[] = {a.dw[0].as<T>() + c, a.dw[1].as<T>() + c};
      *dw[0] = scale + (a.accumulate ? *dw[0] : 0);
      *dw[1] = shift + (a.accumulate ? *dw[1] : 0);
    }
    for (std::size_t i = 0; a.dx[0] && i < rows * columns; ++i)
      a.dx[0].as<T>()[i] = a.dy.as<T>()[i] * a.w[0].as<T>()[i % columns];
  }
};

}  // namespace

void Table::read(std::uint64_t index, std::span<float> input, std::span<float> target) const {
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = float(std::sin(double(index * input.size() + i) * 7.13));
  }
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = float(std::cos(double(index * target.size() + i) * 3.77));
  }
}

engine::LayerPtr centre() {
  return std::make_shared<Centre>();
}

engine::LayerPtr scale_and_shift() {
  return std::make_shared<ScaleAndShift>();
}

engine::GraphSpec small_graph(const Job& job) {
  engine::GraphSpec graph("small", {20});
  graph.then("dense1", engine::dense(64));
  if (job.centre) graph.then("centre", centre());
  if (job.norm) graph.then("norm", scale_and_shift());
  if (job.batch_norm) graph.then("batch_norm", engine::batch_norm({.synchronised = true}));
  graph.then("relu", engine::relu());
  if (job.dropout > 0) graph.then("dropout", engine::dropout(job.dropout));
  graph.then("dense2", engine::dense(32));
  graph.then("tanh", engine::tanh());
  graph.then("dense3", engine::dense(5));
  graph.set_loss(job.loss ? job.loss : engine::mean_squared_error());
  return graph;
}

strategies::SynchronousOptions replicas(int count) {
  // All tests share one device, which holds nothing but its name.
  static const std::unique_ptr<engine::Device> device = engine::reference_device();
  strategies::SynchronousOptions options;
  options.devices.assign(std::size_t(count), device.get());
  options.step.bucket_bytes = engine::kBlock * sizeof(double);
  options.deadline = std::chrono::milliseconds(20000);
  options.communication_thread = false;
  options.log = engine::Log("", engine::Log::Level::kError);
  return options;
}

engine::History train(engine::Strategy& strategy, const Job& job, Outcome* outcome) {
  engine::TrainerOptions trainer_options;
  trainer_options.storage = job.storage;
  trainer_options.log = job.log;
  trainer_options.fallback = job.fallback;
  engine::Trainer trainer(strategy, small_graph(job), job.optimizer, trainer_options);
  const Table data = small_data();
  engine::FitOptions fit;
  fit.steps = job.steps;
  fit.global_batch = job.batch;
  fit.accumulate = job.accumulate;
  fit.checkpoints = job.checkpoints;
  fit.every = job.every;
  fit.every_seconds = job.every_seconds;
  fit.retries = job.retries;
  const engine::Membership me = strategy.membership();
  if (!job.last_hears_alone || me.rank + me.local == me.size) fit.interrupt = job.interrupt;
  fit.test = job.test;
  fit.prefetch_threads = job.prefetch;
  fit.steps_per_execution = job.steps_per_execution;
  fit.on_step = [&](const engine::StepReport& report) {
    if (outcome != nullptr) outcome->losses.push_back(report.loss);
    if (job.on_step) job.on_step(report);
  };
  if (job.profile_steps == 0) return trainer.fit(data, fit);
  engine::Profile profile(job.profile_steps);
  fit.profile = &profile;
  const engine::History history = trainer.fit(data, fit);
  const std::string trace = engine::chrome_trace(strategy, profile);
  if (outcome != nullptr) outcome->trace = trace;
  return history;
}

namespace {

void read_out(const strategies::Synchronous& strategy, Outcome& outcome) {
  const engine::Membership me = strategy.membership();
  for (int i = 0; i < me.local; ++i) {
    outcome.weights[std::size_t(me.rank + i)] = weights(strategy, i);
  }
  if (me.chief) {
    outcome.owned = owned_elements(strategy, 0);
    outcome.overlapped = overlapped(strategy);
    outcome.repeated = strategy.repeated();
    outcome.reductions_beside = reductions_beside(strategy);
  }
}

}  // namespace

Outcome train_mirrored(const Job& job, strategies::SynchronousOptions options) {
  Outcome outcome;
  options.step.dtype = job.dtype;
  outcome.weights.resize(options.devices.size());
  strategies::Mirrored strategy(std::move(options));
  outcome.history = train(strategy, job, &outcome);
  read_out(strategy, outcome);
  return outcome;
}

Outcome train_collective(const Job& job, strategies::SynchronousOptions options,
                         std::vector<int> host, std::vector<int> counts,
                         std::vector<engine::Device*> devices) {
  Outcome outcome;
  options.step.dtype = job.dtype;
  if (counts.empty()) counts.assign(host.size(), int(options.devices.size()));
  outcome.weights.resize(std::size_t(std::accumulate(counts.begin(), counts.end(), 0)));
  const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
  std::vector<std::thread> processes;
  std::mutex mutex;
  std::exception_ptr first;
  for (const auto& bootstrap : bootstraps) {
    processes.emplace_back([&, b = bootstrap.get()] {
      try {
        strategies::SynchronousOptions mine = options;
        const auto me = std::size_t(b->process());
        mine.devices.assign(std::size_t(counts[me]),
                            devices.empty() ? options.devices[0] : devices[me]);
        strategies::CollectiveAllReduce strategy(mine, *b);
        const bool chief = strategy.membership().chief;
        Outcome unused;
        const engine::History history = train(strategy, job, chief ? &outcome : &unused);
        if (chief) outcome.history = history;
        read_out(strategy, outcome);
        // Like processes, no thread ends before all have read their last message.
        b->finish();
      } catch (...) {
        std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& process : processes) process.join();
  if (first) std::rethrow_exception(first);
  return outcome;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::isnan(a[i] - b[i]) ? INFINITY : std::abs(a[i] - b[i]));
  }
  return largest;
}

double relative(const std::vector<double>& a, const std::vector<double>& b) {
  double above = 0, below = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    above += (a[i] - b[i]) * (a[i] - b[i]);
    below += b[i] * b[i];
  }
  return std::sqrt(above / below);
}

std::function<void()> delays(int seed) {
  // The copies of the function share the state.
  auto state = std::make_shared<std::atomic<std::uint64_t>>(std::uint64_t(seed) * 7919 + 1);
  return [state] {
    std::uint64_t x = state->fetch_add(0x9e3779b97f4a7c15u);
    x ^= x >> 31, x *= 0xbf58476d1ce4e5b9u, x ^= x >> 29;
    if (x % 8 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(x / 8 % 60));
    } else if (x % 8 < 4) {
      std::this_thread::yield();
    }
  };
}

}  // namespace lockstep::test
