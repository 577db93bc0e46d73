// SPDX-License-Identifier: MIT
#include "engine/nn/graph.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/nn/graph_plan.h"
#include "engine/nn/memory_plan.h"

namespace lockstep::engine {
namespace {

// A gradient that is not the first one for its value: written to `from`, then added.
struct Addition {
  Tensor from, to;
};

// One layer, with everything it is given in a step. The spans of `forward` and `backward` point
// into the vectors beside them.
struct Step {
  std::vector<Tensor> x, w, dx, dw;
  ForwardArguments forward;
  BackwardArguments backward;
  std::vector<Addition> additions;
};

}  // namespace

struct Graph::Plan {
  Plan(const GraphSpec& s, Ops& o, std::size_t r)
      : spec(s), ops(&o), rows(r), graph(plan_graph(s)), slice_rows(o.slice_rows()) {
    require(rows > 0, "model {}: a replica must hold at least one example", spec.name());
    plan_slices();
    plan_values();
    plan_gradients();
    place();
  }

  // A step has 2n + 1 moments for n layers: forward of layer i is moment i, the loss is moment n,
  // backward of layer i is moment 2n - i. The layers of a chain take turns, so each of them begins
  // with the first and ends with the last.
  std::size_t first_of(std::size_t i) const {
    return chain_of[i] == kNone ? i : graph.chains[chain_of[i]].first;
  }
  std::size_t last_of(std::size_t i) const {
    return chain_of[i] == kNone ? i : graph.chains[chain_of[i]].last;
  }
  std::size_t forward_begin(std::size_t i) const { return first_of(i); }
  std::size_t forward_end(std::size_t i) const { return last_of(i); }
  std::size_t loss_moment() const { return graph.nodes.size(); }
  std::size_t backward_begin(std::size_t i) const { return 2 * graph.nodes.size() - last_of(i); }
  std::size_t backward_end(std::size_t i) const { return 2 * graph.nodes.size() - first_of(i); }
  std::size_t last_moment() const { return 2 * graph.nodes.size(); }
  // Whether the output of node i lies between two layers of a chain.
  bool between(std::size_t i) const { return chain_of[i] != kNone && i != last_of(i); }
  // Of a slice's rows those that count.
  Tensor in_use(const Tensor& y) const { return rows_of(y, 0, std::size_t(slice_state.examples)); }

  std::size_t bytes(const Shape& shape, DType dtype, bool slice = false) const {
    return (slice ? slice_rows : rows) * shape.elements() * size_of(dtype);
  }
  Shape shape(std::size_t value) const { return spec.shape({value}); }
  std::size_t book(std::size_t size, std::size_t first, std::size_t last);
  void plan_slices();
  void plan_values();
  void plan_gradients();
  void place();
  std::string name_of(std::size_t block) const;
  void connect();
  Tensor tensor(std::size_t block, const Shape& shape, DType dtype) const;
  void forward_node(Context& context, std::size_t i);
  void backward_node(Context& context, std::size_t i, bool accumulate);
  template <class Body>
  void each_slice(Context& context, Body body);
  void forward_slice(Context& context, std::size_t i, std::size_t first, Slice slice,
                     Observer::Pass pass);
  void backward_slice(Context& context, std::size_t i, std::size_t first, Slice slice,
                      bool accumulate);
  template <class Body>
  void observed(std::size_t i, Observer::Pass pass, const Tensor& y, Body body);

  const GraphSpec spec;
  Ops* ops;
  const std::size_t rows;
  const GraphPlan graph;
  const std::size_t slice_rows;
  std::vector<std::size_t> chain_of;  // of each node, or kNone
  StepState slice_state;
  Observer* observer = nullptr;

  // Blocks of the buffer: `values` and `gradients` by value (storage only), the others by node.
  static constexpr std::size_t kNone = std::size_t(-1);
  std::vector<Lifetime> blocks;
  std::vector<std::size_t> values, gradients, workspaces;
  std::vector<std::vector<std::size_t>> aside;  // per node and input: a block of its own, or kNone
  std::size_t target_block = 0, ids_block = 0, losses_block = 0, correct_block = 0;
  MemoryPlan memory;
  Buffer buffer;
  std::vector<Step> steps;
  Tensor input, target, output, output_gradient, losses, correct;
  std::int64_t* ids = nullptr;
  std::byte* weights = nullptr;  // the strategy's arena, once bound
};

std::size_t Graph::Plan::book(std::size_t size, std::size_t first, std::size_t last) {
  blocks.push_back({size, first, last});
  return blocks.size() - 1;
}

// Chains take turns only where the device likes slices and a batch has more rows than one.
void Graph::Plan::plan_slices() {
  chain_of.assign(graph.nodes.size(), kNone);
  if (slice_rows == 0 || slice_rows >= rows) return;
  for (std::size_t k = 0; k < graph.chains.size(); ++k) {
    for (std::size_t i = graph.chains[k].first; i <= graph.chains[k].last; ++i) chain_of[i] = k;
  }
}

// What is written by the loop or read by it lives all the time. The output of a layer lives from
// the layer's forward until its last reader: backward of the layer itself, which is last of all,
// where that runs; else backward of a reader that runs, or forward of one.
void Graph::Plan::plan_values() {
  const std::size_t count = graph.storage.size();
  const DType dtype = ops->dtype();
  values.assign(count, kNone);
  values[0] = book(bytes(spec.input_shape(), dtype), 0, last_moment());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const PlannedNode& node = graph.nodes[i];
    // Of a chain, backward computes all layers but the last again, the frozen ones too.
    const bool again = graph.nodes[last_of(i)].backward;
    const std::size_t last = again ? backward_end(i) : forward_end(i);
    values[node.output] =
        book(bytes(shape(node.output), dtype, between(i)), forward_begin(i), last);
    for (std::size_t from : node.inputs) {
      Lifetime& life = blocks[values[graph.storage[from]]];
      life.last = std::max(life.last, last);
    }
    workspaces.push_back(
        book(node.layer->workspace(*ops, node.input_shapes, rows), forward_begin(i), last));
  }
  blocks[values[graph.storage[count - 1]]].last = last_moment();
  target_block = book(bytes({spec.target_columns()}, DType::kFloat32), 0, last_moment());
  ids_block = book(bytes({1}, DType::kInt64), 0, last_moment());
  losses_block = book(bytes({1}, DType::kFloat64), 0, last_moment());
  correct_block = book(bytes({1}, DType::kFloat64), 0, last_moment());
}

// A gradient lives from its first writer (the loss, or the last of the layers that read the value)
// to backward of the layer that makes the value. Every further writer has a block of its own for
// the moment of its backward.
void Graph::Plan::plan_gradients() {
  const DType dtype = ops->dtype();
  gradients.assign(graph.storage.size(), kNone);
  const std::size_t last_value = graph.storage[graph.storage.size() - 1];
  if (graph.wanted[last_value]) {
    gradients[last_value] = book(bytes(shape(last_value), dtype), loss_moment(), loss_moment());
  }
  aside.resize(graph.nodes.size());
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const PlannedNode& node = graph.nodes[i];
    aside[i].assign(node.inputs.size(), kNone);
    if (!node.backward) continue;
    const std::size_t now = backward_begin(i), end = backward_end(i);
    invariant(gradients[node.output] != kNone, "a layer whose gradient nobody writes");
    blocks[gradients[node.output]].last = end;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t value = graph.storage[node.inputs[k]];
      if (!graph.wanted[value]) continue;
      const bool slice = chain_of[i] != kNone && i != first_of(i);
      if (gradients[value] == kNone) {
        gradients[value] = book(bytes(shape(value), dtype, slice), now, end);
      } else {
        aside[i][k] = book(bytes(shape(value), dtype), now, end);
      }
    }
  }
}

void Graph::Plan::place() {
  memory = plan_memory(blocks);
}

// What a block holds, in words for people.
std::string Graph::Plan::name_of(std::size_t block) const {
  for (std::size_t v = 0; v < graph.storage.size(); ++v) {
    const bool is_value = values[v] == block, is_gradient = gradients[v] == block;
    if (!is_value && !is_gradient) continue;
    std::string text = is_value ? "" : "the gradient of ";
    text += v == 0 ? "the input" : "the output of " + spec.nodes()[v - 1].name;
    return text + ", " + to_string(shape(v).with_rows(rows));
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (workspaces[i] == block) return "the workspace of " + graph.nodes[i].name;
    if (std::ranges::find(aside[i], block) != aside[i].end()) {
      return "a gradient that " + graph.nodes[i].name + " adds to";
    }
  }
  return "targets and losses";
}

Tensor Graph::Plan::tensor(std::size_t block, const Shape& extents, DType dtype) const {
  std::byte* data = block == kNone ? nullptr : buffer.data() + memory.offsets[block];
  return {data, extents.with_rows(rows), dtype};
}

void Graph::Plan::connect() {
  const DType dtype = ops->dtype();
  const auto value = [&](std::size_t v) {
    return tensor(values[graph.storage[v]], shape(v), dtype);
  };
  const auto gradient = [&](std::size_t v) {
    return tensor(gradients[graph.storage[v]], shape(v), dtype);
  };
  steps.resize(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const PlannedNode& node = graph.nodes[i];
    Step& step = steps[i];
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t from = node.inputs[k];
      step.x.push_back(value(from));
      if (aside[i][k] != kNone) {
        step.dx.push_back(tensor(aside[i][k], shape(from), dtype));
        step.additions.push_back({step.dx.back(), gradient(from)});
      } else if (node.backward) {
        step.dx.push_back(gradient(from));
      }
    }
    for (std::size_t k : node.parameters) {
      step.w.push_back({nullptr, graph.layout[k].shape, dtype});
      step.dw.push_back({nullptr, graph.layout[k].shape, dtype});
    }
    std::byte* workspace =
        blocks[workspaces[i]].bytes ? buffer.data() + memory.offsets[workspaces[i]] : nullptr;
    step.forward = {.x = step.x,
                    .y = value(node.output),
                    .w = step.w,
                    .workspace = workspace,
                    .rows = rows,
                    .point = node.point,
                    .name = &node.name};
    step.backward = {.x = step.x,
                     .y = value(node.output),
                     .dy = gradient(node.output),
                     .dx = step.dx,
                     .w = step.w,
                     .dw = step.dw,
                     .workspace = workspace,
                     .rows = rows,
                     .point = node.point,
                     .name = &node.name,
                     .accumulate = false};
  }
  const std::size_t last = graph.storage.size() - 1;
  input = value(0);
  output = value(last);
  output_gradient = gradient(last);
  target = tensor(target_block, {spec.target_columns()}, DType::kFloat32);
  losses = tensor(losses_block, {}, DType::kFloat64);
  correct = tensor(correct_block, {}, DType::kFloat64);
  ids = tensor(ids_block, {}, DType::kInt64).as<std::int64_t>();
}

// Tells the observer, where there is one, when `body` ran.
template <class Body>
void Graph::Plan::observed(std::size_t i, Observer::Pass pass, const Tensor& y, Body body) {
  if (observer == nullptr) return body();
  const Clock::time_point begin = Clock::now();
  body();
  observer->layer(graph.nodes[i].name, pass, begin, Clock::now(), y);
}

void Graph::Plan::forward_node(Context& context, std::size_t i) {
  observed(i, Observer::Pass::kForward, steps[i].forward.y,
           [&] { graph.nodes[i].layer->forward(context, steps[i].forward); });
}

void Graph::Plan::backward_node(Context& context, std::size_t i, bool accumulate) {
  Step& step = steps[i];
  step.backward.accumulate = accumulate;
  observed(i, Observer::Pass::kBackward, step.forward.y, [&] {
    graph.nodes[i].layer->backward(context, step.backward);
    for (const Addition& addition : step.additions) {
      ops->add(context.state, addition.to, addition.from, addition.to);
    }
  });
}

// Calls body(first row, slice) for the slices of the batch, at least once, with a state that counts
// the rows of the slice alone.
template <class Body>
void Graph::Plan::each_slice(Context& context, Body body) {
  const StepState* const whole = context.state;
  const std::size_t examples = std::size_t(whole->examples);
  slice_state = *whole;
  context.state = &slice_state;
  for (std::size_t first = 0; first == 0 || first < examples; first += slice_rows) {
    slice_state.examples = std::int64_t(std::min(slice_rows, examples - first));
    slice_state.ids = whole->ids == nullptr ? nullptr : whole->ids + first;
    body(first, Slice{first == 0, first + slice_rows >= examples});
  }
  context.state = whole;
}

void Graph::Plan::forward_slice(Context& context, std::size_t i, std::size_t first, Slice slice,
                                Observer::Pass pass) {
  // Whole slices, of which the last may use fewer rows: kernels are chosen by the planned ones.
  ForwardArguments a = steps[i].forward;
  const Tensor x = rows_of(a.x[0], i == first_of(i) ? first : 0, slice_rows);
  a.x = {&x, 1};
  a.y = rows_of(a.y, between(i) ? 0 : first, slice_rows);
  a.first_row = first;
  a.slice = slice;
  observed(i, pass, in_use(a.y), [&] { graph.nodes[i].layer->forward(context, a); });
}

void Graph::Plan::backward_slice(Context& context, std::size_t i, std::size_t first, Slice slice,
                                 bool accumulate) {
  BackwardArguments a = steps[i].backward;
  const std::size_t in = i == first_of(i) ? first : 0, out = between(i) ? 0 : first;
  const Tensor x = rows_of(a.x[0], in, slice_rows);
  const Tensor dx = rows_of(a.dx[0], in, slice_rows);
  a.x = {&x, 1};
  a.dx = {&dx, 1};
  a.y = rows_of(a.y, out, slice_rows);
  a.dy = rows_of(a.dy, out, slice_rows);
  a.first_row = first;
  a.slice = slice;
  a.accumulate = accumulate;
  observed(i, Observer::Pass::kBackward, in_use(a.y), [&] {
    graph.nodes[i].layer->backward(context, a);
    for (const Addition& addition : steps[i].additions) {
      const Tensor to = rows_of(addition.to, in, slice_rows);
      ops->add(context.state, to, rows_of(addition.from, in, slice_rows), to);
    }
  });
}

Graph::Graph(const GraphSpec& spec, Ops& ops, std::size_t rows) {
  plan_ = std::make_unique<Plan>(spec, ops, rows);
  plan_->buffer = Buffer(plan_->memory.bytes);
  plan_->connect();
}

GraphMemory Graph::memory(const GraphSpec& spec, Ops& ops, std::size_t rows) {
  const Plan plan(spec, ops, rows);
  const auto largest = std::ranges::max_element(plan.blocks, {}, &Lifetime::bytes);
  KernelMemory kernels;
  for (const PlannedNode& node : plan.graph.nodes)
    kernels.cover(node.layer->kernel_memory(ops, node.input_shapes, rows));
  GraphMemory result{plan.memory.bytes, kernels.bytes(),
                     plan.name_of(std::size_t(largest - plan.blocks.begin())), largest->bytes};
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
std::size_t Graph::activation_bytes() const {
  return plan_->memory.bytes;
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
  std::memset(weights, 0, parameters() * size);
  for (const Parameter& parameter : layout()) {
    engine::initialise(parameter.initial, seed, parameter.name,
                       {weights + parameter.range.begin * size, parameter.shape, dtype()});
  }
}

Tensor Graph::input() const {
  return plan_->input;
}
Tensor Graph::target() const {
  return plan_->target;
}
std::int64_t* Graph::ids() const {
  return plan_->ids;
}
Tensor Graph::output() const {
  return plan_->output;
}
Tensor Graph::weight(const Parameter& parameter) const {
  return {plan_->weights + parameter.range.begin * size_of(dtype()), parameter.shape, dtype()};
}
Tensor Graph::losses() const {
  return plan_->losses;
}
Tensor Graph::correct() const {
  return plan_->spec.loss().counts_correct() ? plan_->correct : Tensor{};
}
std::vector<std::string> Graph::layers() const {
  std::vector<std::string> names;
  for (const PlannedNode& node : plan_->graph.nodes) names.push_back(node.name);
  return names;
}
std::size_t Graph::slices() const {
  const std::size_t rows = plan_->slice_rows;
  return rows == 0 ? 1 : std::max<std::size_t>(1, (plan_->rows + rows - 1) / rows);
}
void Graph::observe(Observer* observer) {
  plan_->observer = observer;
}

void Graph::forward(Context& context, const Hook& before) {
  Plan& plan = *plan_;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const std::size_t last = plan.last_of(i);
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
  plan_->spec.loss().evaluate(context, plan_->output, plan_->target,
                              gradient ? plan_->output_gradient : Tensor{}, plan_->losses,
                              plan_->correct);
}

// Of a chain, what lies between its layers is computed again, slice by slice.
void Graph::backward(Context& context, bool accumulate, const Hook& ready) {
  Plan& plan = *plan_;
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    if (!plan.graph.nodes[i].backward) continue;
    const std::size_t first_node = plan.first_of(i);
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
}

}  // namespace lockstep::engine
