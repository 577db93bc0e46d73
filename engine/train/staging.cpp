// SPDX-License-Identifier: MIT
#include "engine/train/staging.h"

#include <algorithm>
#include <cmath>

namespace lockstep::engine {
namespace {

const std::string kAdvice = "; try a smaller rate or clipping";

bool finite(const Tensor& tensor, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    if (!std::isfinite(number_at(tensor.data, tensor.dtype, i))) return false;
  }
  return true;
}

// Keeps the name of the first layer whose output is not finite.
class FirstNotFinite : public Observer {
 public:
  explicit FirstNotFinite(const StepState& state) : state_(state) {}
  void layer(const std::string& name, Pass, Clock::time_point, Clock::time_point,
             Tensor y) override {
    const std::size_t rows = std::min(y.rows(), std::size_t(state_.examples));
    if (found.empty() && !finite(y, rows * y.columns())) found = name;
  }
  std::string found;

 private:
  const StepState& state_;
};

}  // namespace

void stage(Replica& replica, const Batch& batch, std::int64_t step, std::size_t whole,
           double rate) {
  Graph& graph = replica.graph;
  invariant(batch.rows() <= graph.rows(), "more examples than were planned for");
  StepState& state = replica.state;
  state.step = step;
  state.examples = std::int64_t(batch.rows());
  state.inverse_examples = 1.0 / double(whole);
  state.rate = rate;
  state.ids = graph.ids();
  if (batch.rows() == 0) return;
  Tensor input = graph.input();
  const std::size_t columns = input.columns();
  input.shape = Shape{batch.rows(), columns};
  replica.context->ops->load(batch.inputs.data(), input);
  std::copy(batch.targets.begin(), batch.targets.end(), graph.target().as<float>());
  std::copy(batch.ids.begin(), batch.ids.end(), graph.ids());
}

std::string find_not_finite(Replica& replica) {
  Graph& graph = replica.graph;
  if (!finite(graph.input(), std::size_t(replica.state.examples) * graph.input().columns())) {
    return "the input is not finite";
  }
  for (const Parameter& parameter : graph.layout()) {
    if (!finite(graph.weight(parameter), parameter.range.size())) {
      return "the weights " + parameter.name +
             " are not finite, so the update before was too large or its gradient not finite" +
             kAdvice;
    }
  }
  if (!graph.reductions().empty()) return "inputs and weights are finite";  // others do not follow
  FirstNotFinite first(replica.state);
  graph.observe(&first);
  graph.forward(*replica.context, [](Range) {});
  graph.observe(nullptr);
  if (!first.found.empty())
    return "the output of layer " + first.found + " is not finite" + kAdvice;
  return "the outputs are finite, and the loss of them is not" + kAdvice;
}

}  // namespace lockstep::engine
