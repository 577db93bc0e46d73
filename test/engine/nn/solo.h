// SPDX-License-Identifier: MIT
// A graph that runs alone on a device's kernels, with its own arenas and a batch drawn from (seed,
// example).
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/random.h"
#include "engine/device/buffer.h"
#include "engine/nn/graph.h"
#include "engine/nn/local_context.h"

namespace lockstep::engine {

struct Solo {
  Solo(const GraphSpec& spec, Ops& ops, std::size_t rows, std::uint64_t seed = 1,
       GraphOptions options = {})
      : graph(spec, ops, rows, options),
        context(ops, graph),
        weights(ops.allocate(graph.parameters() * size_of(ops.dtype()), "weights")),
        gradients(ops.allocate(graph.trainable() * size_of(ops.dtype()), "gradients")) {
    graph.bind(weights.data(), gradients.data());
    const Buffer start(weights.bytes());
    graph.initialise(seed, start.data());
    ops.write(start.data(), weights.data(), weights.bytes());
    context.state = &state;
    context.seed = seed;
    fill(0, rows, rows, spec.loss().counts_correct() ? spec.output_shape().elements() : 0);
  }
  // Fills in examples [first, first + count) of a batch of `whole`. Targets are classes, or numbers
  // if `classes` is 0.
  void fill(std::size_t first, std::size_t count, std::size_t whole, std::size_t classes) {
    state.examples = std::int64_t(count);
    state.inverse_examples = 1 / double(whole);
    state.ids = graph.ids();
    const Tensor input = graph.input(), target = graph.target();
    std::vector<float> numbers(input.elements()), targets(target.elements());
    std::vector<std::int64_t> ids(graph.rows());
    for (std::size_t row = 0; row < count; ++row) {
      Random random(77, first + row);
      ids[row] = std::int64_t(1000 + first + row);
      for (std::size_t i = 0; i < input.columns(); ++i) {
        numbers[row * input.columns() + i] = float(random.uniform(-1, 1));
      }
      for (std::size_t i = 0; i < target.columns(); ++i) {
        targets[row * target.columns() + i] =
            classes ? float(random.below(classes)) : float(random.uniform(-1, 1));
      }
    }
    context.ops->load(numbers.data(), input);
    context.ops->write(targets.data(), target.data, target.bytes());
    context.ops->write(ids.data(), reinterpret_cast<std::byte*>(graph.ids()),
                       ids.size() * sizeof(std::int64_t));
  }
  void step(bool accumulate = false, const Graph::Hook& before = {},
            const Graph::Hook& ready = {}) {
    context.state = context.ops->publish(state);
    graph.forward(context, before);
    graph.evaluate_loss(context, true);
    graph.backward(context, accumulate, ready);
  }
  double loss() {
    std::vector<double> losses(std::size_t(state.examples));
    context.ops->read(graph.losses().data, losses.data(), losses.size() * sizeof(double));
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return sum * state.inverse_examples;
  }
  // Returns elements of an arena or a tensor as double.
  std::vector<double> numbers(const std::byte* data, std::size_t count) const {
    std::vector<std::byte> bytes(count * size_of(graph.dtype()));
    context.ops->read(data, bytes.data(), bytes.size());
    std::vector<double> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = number_at(bytes.data(), graph.dtype(), i);
    return all;
  }
  std::vector<double> gradient() const { return numbers(gradients.data(), graph.trainable()); }
  std::vector<double> output() const {
    return numbers(graph.output().data, graph.output().elements());
  }

  Graph graph;
  LocalContext context;
  StepState state;
  Buffer weights, gradients;
};

// Records the layers that ran.
class Watcher final : public Observer {
 public:
  void layer(const std::string& name, Pass pass, Clock::time_point begin, Clock::time_point end,
             Tensor) override {
    (pass == Pass::kForward ? forward : backward).push_back(name);
    negative |= end < begin;
  }
  std::vector<std::string> forward, backward;
  bool negative = false;
};

}  // namespace lockstep::engine
