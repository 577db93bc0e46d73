// SPDX-License-Identifier: MIT
#include "engine/train/staging.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/host_view.h"

namespace lockstep::engine {
namespace {

const std::string kAdvice = "; try a smaller rate or clipping";

// Returns whether the first `rows` rows are finite; the second overload checks a whole parameter.
bool finite(Ops& ops, const Tensor& tensor, std::size_t rows) {
  const HostView view(ops, tensor, rows);
  for (std::size_t i = 0; i < rows * tensor.columns(); ++i) {
    if (!std::isfinite(number_at(view.tensor().data, tensor.dtype, i))) return false;
  }
  return true;
}
bool finite(Ops& ops, const Tensor& parameter) {
  return finite(ops, parameter, parameter.rows());
}

// Keeps the name of the first layer whose output is not finite.
class FirstNotFinite : public Observer {
 public:
  FirstNotFinite(Ops& ops, const StepState& state) : ops_(ops), state_(state) {}
  void layer(const std::string& name, Pass, Clock::time_point, Clock::time_point,
             Tensor y) override {
    const std::size_t rows = std::min(y.rows(), std::size_t(state_.examples));
    if (found.empty() && !finite(ops_, y, rows)) found = name;
  }
  std::string found;

 private:
  Ops& ops_;
  const StepState& state_;
};

}  // namespace

void stage(Replica& replica, const Batch& batch, std::int64_t step, std::size_t global_batch,
           double rate) {
  Graph& graph = replica.graph;
  invariant(batch.rows() <= graph.rows(), "more examples than were planned for");
  StepState& state = replica.state;
  state.step = step;
  state.examples = std::int64_t(batch.rows());
  state.inverse_examples = 1.0 / double(global_batch);
  state.rate = rate;
  state.ids = graph.ids();
  Ops& ops = *replica.context->ops;
  static_assert(sizeof(StepState) <= Batch::kRoom);
  replica.context->state = ops.stage(state, {batch.inputs, batch.targets, batch.ids, batch.block()},
                                     graph.input(), graph.target(), graph.ids());
}

std::string find_not_finite(Replica& replica) {
  Graph& graph = replica.graph;
  Ops& ops = *replica.context->ops;
  if (!finite(ops, graph.input(), std::size_t(replica.state.examples))) {
    return "the input is not finite";
  }
  for (const Parameter& parameter : graph.layout()) {
    if (!finite(ops, graph.weight(parameter))) {
      return "the weights " + parameter.name +
             " are not finite, so the update before was too large or its gradient not finite" +
             kAdvice;
    }
  }
  if (!graph.reductions().empty())
    return "inputs and weights are finite";  // other replicas do not follow
  FirstNotFinite first(ops, replica.state);
  graph.observe(&first);
  graph.forward(*replica.context, [](Range) {});
  graph.observe(nullptr);
  if (!first.found.empty())
    return "the output of layer " + first.found + " is not finite" + kAdvice;
  return "the outputs are finite, and the loss of them is not" + kAdvice;
}

}  // namespace lockstep::engine
