// SPDX-License-Identifier: MIT
#include "engine/nn/graph.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/nn/graph_parts.h"

namespace lockstep::engine {

// Reports to the observer, if there is one, when `run` ran. An error begins with the name of the
// layer, except for errors of other ranks.
template <class Body>
void Graph::Plan::observed(std::size_t i, Observer::Pass pass, const Tensor& y, Body run) {
  const auto body = [&] {
    const auto layer = [&] { return "layer " + graph.nodes[i].name; };
    try {
      run();
    } catch (const Error& error) {
      const Code code = error.code();
      const std::string name = layer();
      const bool of_others =
          code == Code::kPeerLost || code == Code::kTimeout || code == Code::kAborted;
      if (of_others || std::string_view(error.what()).starts_with(name)) throw;
      throw error.with(name + ": " + error.what());
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(Code::kInvalid, layer() + ": " + error.what());
    }
  };
  if (observer == nullptr) return body();
  const bool timed = observer->timed();
  if (timed) ops->synchronize();
  observer->begins(graph.nodes[i].name, pass);
  const Clock::time_point begin = Clock::now();
  body();
  if (timed) ops->synchronize();
  observer->layer(graph.nodes[i].name, pass, begin, Clock::now(), y);
}

void Graph::Plan::forward_node(Context& context, std::size_t i) {
  observed(i, Observer::Pass::kForward, steps[i].forward.y,
           [&] { graph.nodes[i].layer->forward(context, steps[i].forward); });
}

// Computes again the inner values of a block that backward needs.
void Graph::Plan::run_again(Context& context, std::size_t block) {
  for (std::size_t i = graph.blocks[block].first; i < graph.blocks[block].last; ++i) {
    if (!schedule.again(i)) continue;
    observed(i, Observer::Pass::kBackward, steps[i].again.y,
             [&] { graph.nodes[i].layer->forward(context, steps[i].again); });
  }
}

void Graph::Plan::backward_node(Context& context, std::size_t i, bool accumulate) {
  Step& step = steps[i];
  step.backward.accumulate = accumulate;
  observed(i, Observer::Pass::kBackward, step.forward.y, [&] {
    if (schedule.apart(i)) ops->begin_apart(schedule.running(i));
    graph.nodes[i].layer->backward(context, step.backward);
    if (schedule.apart(i)) ops->end_apart();
    for (const Addition& addition : step.additions) {
      ops->add(context.state, addition.to, addition.from, addition.to);
    }
  });
}

// Calls body(first row, slice) for each slice of the batch, at least once. The state then counts
// only the rows of the slice.
template <class Body>
void Graph::Plan::each_slice(Context& context, Body body) {
  const StepState* const whole = context.state;
  const std::size_t examples = std::size_t(whole->examples);
  slice_state = *whole;
  context.state = &slice_state;
  for (std::size_t first = 0; first == 0 || first < examples; first += schedule.slice_rows()) {
    slice_state.examples = std::int64_t(std::min(schedule.slice_rows(), examples - first));
    slice_state.ids = whole->ids == nullptr ? nullptr : whole->ids + first;
    body(first, Slice{first == 0, first + schedule.slice_rows() >= examples});
  }
  context.state = whole;
}

void Graph::Plan::forward_slice(Context& context, std::size_t i, std::size_t first, Slice slice,
                                Observer::Pass pass) {
  // Slices are whole, though the last may use fewer rows, because kernels are chosen by planned
  // rows.
  ForwardArguments a = steps[i].forward;
  const Tensor x = rows_of(a.x[0], i == schedule.first_of(i) ? first : 0, schedule.slice_rows());
  a.x = {&x, 1};
  a.y = rows_of(a.y, schedule.between(i) ? 0 : first, schedule.slice_rows());
  a.first_row = first;
  a.slice = slice;
  observed(i, pass, in_use(a.y), [&] { graph.nodes[i].layer->forward(context, a); });
}

void Graph::Plan::backward_slice(Context& context, std::size_t i, std::size_t first, Slice slice,
                                 bool accumulate) {
  BackwardArguments a = steps[i].backward;
  const std::size_t in = i == schedule.first_of(i) ? first : 0,
                    out = schedule.between(i) ? 0 : first;
  const Tensor x = rows_of(a.x[0], in, schedule.slice_rows());
  const Tensor dx = rows_of(a.dx[0], in, schedule.slice_rows());
  a.x = {&x, 1};
  a.dx = {&dx, 1};
  a.y = rows_of(a.y, out, schedule.slice_rows());
  a.dy = rows_of(a.dy, out, schedule.slice_rows());
  a.first_row = first;
  a.slice = slice;
  a.accumulate = accumulate;
  observed(i, Observer::Pass::kBackward, in_use(a.y), [&] {
    graph.nodes[i].layer->backward(context, a);
    for (const Addition& addition : steps[i].additions) {
      const Tensor to = rows_of(addition.to, in, schedule.slice_rows());
      ops->add(context.state, to, rows_of(addition.from, in, schedule.slice_rows()), to);
    }
  });
}

Graph::Graph(const GraphSpec& spec, Ops& ops, std::size_t rows, GraphOptions options) {
  plan_ = std::make_unique<Plan>(spec, ops, rows, options);
  require(
      plan_->graph.sources.empty() || ops.in_host_memory(),
      "model {}: rows of tables that a batch touches are found by the host, so compact rows need "
      "a device whose memory is the host's",
      spec.name());
  const GraphMemory needed = memory_of(plan_->places, spec, plan_->graph, rows);
  plan_->buffer =
      ops.allocate(needed.bytes, fmt::format("the graph of {}, of which {} takes {} bytes",
                                             spec.name(), needed.largest, needed.largest_bytes));
  plan_->connect();
}

GraphMemory Graph::memory(const GraphSpec& spec, Ops& ops, std::size_t rows, GraphOptions options) {
  const Plan plan(spec, ops, rows, options);
  GraphMemory result = memory_of(plan.places, spec, plan.graph, rows);
  KernelMemory kernels;
  for (const PlannedNode& node : plan.graph.nodes)
    kernels.cover(node.layer->kernel_memory(ops, node.input_shapes, rows));
  result.kernels = kernels.bytes();
  for (const Parameter& parameter : plan.graph.layout) {
    const std::size_t bytes = parameter.shape.elements() * size_of(ops.dtype());
    if (bytes <= result.largest_bytes) continue;
    result.largest = parameter.name + ", " + to_string(parameter.shape);
    result.largest_bytes = bytes;
  }
  return result;
}

Graph::~Graph() = default;

std::size_t Graph::parameters() const {
  return plan_->graph.parameters;
}
std::size_t Graph::trainable() const {
  return plan_->graph.trainable;
}
const std::vector<Parameter>& Graph::layout() const {
  return plan_->graph.layout;
}
const std::vector<ReductionSpec>& Graph::reductions() const {
  return plan_->graph.reductions;
}
const std::vector<Statistic>& Graph::statistics() const {
  return plan_->graph.statistics;
}
std::span<double> Graph::statistic_values() {
  plan_->ops->synchronize();
  const std::vector<Statistic>& all = plan_->graph.statistics;
  return {plan_->statistics(), all.empty() ? 0 : all.back().range.end};
}
std::size_t Graph::activation_bytes() const {
  return plan_->places.memory.bytes;
}
std::size_t Graph::rows() const {
  return plan_->rows;
}
DType Graph::dtype() const {
  return plan_->ops->dtype();
}

void Graph::bind(std::byte* weights, std::byte* gradients) {
  const std::size_t size = size_of(dtype());
  plan_->weights = weights;
  for (std::size_t i = 0; i < plan_->steps.size(); ++i) {
    const PlannedNode& node = plan_->graph.nodes[i];
    for (std::size_t k = 0; k < node.parameters.size(); ++k) {
      const Parameter& parameter = plan_->graph.layout[node.parameters[k]];
      plan_->steps[i].w[k].data = weights + parameter.range.begin * size;
      plan_->steps[i].dw[k].data = parameter.frozen || gradients == nullptr
                                       ? nullptr
                                       : gradients + parameter.range.begin * size;
    }
  }
}

void Graph::initialise(std::uint64_t seed, std::byte* weights) const {
  const std::size_t size = size_of(dtype());
  std::fill_n(weights, parameters() * size, std::byte(0));  // there may be none
  for (const Parameter& parameter : layout()) {
    if (parameter.compact) continue;
    engine::initialise(parameter.initial, seed, parameter.name,
                       {weights + parameter.range.begin * size, parameter.shape, dtype()});
  }
}

Tensor Graph::input() const {
  return plan_->io.input;
}
Tensor Graph::target() const {
  return plan_->io.target;
}
std::int64_t* Graph::ids() const {
  return plan_->io.ids;
}
Tensor Graph::output() const {
  return plan_->io.output;
}
Tensor Graph::weight(const Parameter& parameter) const {
  return {plan_->weights + parameter.range.begin * size_of(dtype()), parameter.shape, dtype()};
}
Tensor Graph::losses() const {
  return plan_->io.losses;
}
Tensor Graph::correct() const {
  return plan_->spec.loss().counts_correct() ? plan_->io.correct : Tensor{};
}
const std::vector<std::string>& Graph::fallbacks() const {
  return plan_->fallbacks;
}
std::vector<std::string> Graph::layers() const {
  std::vector<std::string> names;
  for (const PlannedNode& node : plan_->graph.nodes) names.push_back(node.name);
  return names;
}
std::size_t Graph::slices() const {
  const std::size_t rows = plan_->schedule.slice_rows();
  return rows == 0 ? 1 : std::max<std::size_t>(1, (plan_->rows + rows - 1) / rows);
}
void Graph::observe(Observer* observer) {
  plan_->observer = observer;
}

void Graph::find_touched(const StepState& state) {
  Plan& plan = *plan_;
  plan.touched_examples = GraphSchedule::kNone;  // an invalid id finds nothing
  for (std::size_t i = 0; i < plan.touched.size(); ++i) {
    plan.touched[i].find(state, *plan.ops, plan.io.input, plan.graph.sources[i].layer);
  }
  plan.touched_examples = std::size_t(state.examples);
}

std::span<const std::uint64_t> Graph::touched(const Parameter& parameter) const {
  if (!parameter.compact) return {};
  return plan_->touched[parameter.source].rows();
}

void Graph::forward(Context& context, const Hook& before) {
  Plan& plan = *plan_;
  invariant(plan.touched.empty() || plan.touched_examples == std::size_t(context.state->examples),
            "forward of a batch whose touched rows were not found");
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const std::size_t last = plan.schedule.last_of(i);
    for (std::size_t k = i; k <= last; ++k) {
      const Range range = plan.graph.nodes[k].range;
      if (before && !range.empty()) before(range);
    }
    if (last == i) {
      plan.forward_node(context, i);
      continue;
    }
    plan.each_slice(context, [&](std::size_t first, Slice slice) {
      for (std::size_t k = i; k <= last; ++k) {
        plan.forward_slice(context, k, first, slice, Observer::Pass::kForward);
      }
    });
    i = last;
  }
}

void Graph::evaluate_loss(Context& context, bool gradient) {
  plan_->loss->evaluate(context, plan_->io.output, plan_->io.target,
                        gradient ? plan_->io.output_gradient : Tensor{}, plan_->io.losses,
                        plan_->io.correct);
}

// Inner values are computed again: those of a chain slice by slice, and those of a block if
// requested.
void Graph::backward(Context& context, bool accumulate, const Hook& ready) {
  Plan& plan = *plan_;
  require(
      !accumulate || plan.touched.empty(),
      "model {}: gradients of compact rows belong to the rows of one batch, so those of several "
      "cannot be added up; leave micro-batches out",
      plan.spec.name());
  plan.ops->join_apart();  // if an exception ended the last backward
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    if (!plan.graph.nodes[i].backward) continue;
    const std::size_t first_node = plan.schedule.first_of(i);
    const std::size_t block = plan.schedule.block_that_ends(i);
    if (block != GraphSchedule::kNone) plan.run_again(context, block);
    if (first_node == i) {
      plan.backward_node(context, i, accumulate);
    } else {
      plan.each_slice(context, [&](std::size_t first, Slice slice) {
        for (std::size_t k = first_node; k < i; ++k) {
          plan.forward_slice(context, k, first, slice, Observer::Pass::kBackward);
        }
        for (std::size_t k = i + 1; k-- > first_node;) {
          if (!plan.graph.nodes[k].backward) break;
          plan.backward_slice(context, k, first, slice, accumulate);
        }
      });
    }
    for (std::size_t k = i + 1; k-- > first_node;) {
      const Range range = plan.graph.nodes[k].range;
      if (ready && !range.empty()) ready(range);
    }
    i = first_node;
  }
  plan.ops->join_apart();
}

}  // namespace lockstep::engine
