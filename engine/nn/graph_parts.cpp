// SPDX-License-Identifier: MIT
#include "engine/nn/graph_parts.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/nn/host_layer.h"
#include "engine/nn/host_loss.h"

namespace lockstep::engine {
namespace {

// Throws unless there are host kernels for a layer or a loss, named by `what`, that touches its
// operands itself: these must be in host memory.
void require_fallback(const std::string& what, const Ops& ops, const GraphOptions& options) {
  require(options.fallback != nullptr,
          "{} has no kernels for {} on {}: it touches memory of the host itself. Give it some "
          "(on_device), or let it run on the host (TrainerOptions::fallback)",
          what, name(ops.dtype()), options.device.empty() ? "the device" : options.device);
}

// Wraps layers that need host memory to run on copies if the device has other memory.
GraphPlan placed(GraphPlan plan, const Ops& ops, const GraphOptions& options) {
  for (PlannedNode& node : plan.nodes) {
    if (ops.in_host_memory() || node.layer->on_device()) continue;
    require_fallback(fmt::format("layer {} ({})", node.name, node.layer->describe()), ops, options);
    node.layer = std::make_shared<HostLayer>(node.layer, *options.fallback);
  }
  return plan;
}

// Returns the loss, wrapped to run on copies if the device cannot run it.
std::shared_ptr<const Loss> placed(std::shared_ptr<const Loss> loss, const Ops& ops,
                                   const GraphOptions& options) {
  if (ops.in_host_memory() || loss->on_device()) return loss;
  require_fallback(fmt::format("the loss ({})", loss->describe()), ops, options);
  return std::make_shared<HostLoss>(loss, *options.fallback);
}

std::vector<std::string> names_of_fallbacks(const GraphPlan& plan, const Loss& loss) {
  std::vector<std::string> names;
  for (const PlannedNode& node : plan.nodes)
    if (dynamic_cast<const HostLayer*>(node.layer.get()) != nullptr) names.push_back(node.name);
  if (dynamic_cast<const HostLoss*>(&loss) != nullptr) names.push_back("the loss");
  return names;
}

}  // namespace

Graph::Plan::Plan(const GraphSpec& s, Ops& o, std::size_t r, GraphOptions options)
    : spec(s),
      ops(&o),
      rows(r),
      graph(placed(plan_graph(s, options.compact_rows ? r : 0), o, options)),
      loss(placed(s.shared_loss(), o, options)),
      fallbacks(names_of_fallbacks(graph, *loss)),
      schedule(spec, graph, o, r, options.recompute),
      places(plan_buffer(spec, graph, schedule, o, r)) {}

Tensor Graph::Plan::tensor(std::size_t block, const Shape& extents, DType dtype) {
  return {places.at(buffer.data(), block), extents.with_rows(rows), dtype};
}

Graph::Plan::Step Graph::Plan::step_of(std::size_t i) {
  const PlannedNode& node = graph.nodes[i];
  const auto tensor_of = [&](const std::vector<std::size_t>& of_value, std::size_t value) {
    return tensor(of_value[graph.storage[value]], spec.shape({value}), ops->dtype());
  };
  Step step;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const std::size_t from = node.inputs[k];
    step.x.push_back(tensor_of(places.values, from));
    step.x_late.push_back(tensor_of(places.values_late, from));
    const Tensor gradient = tensor_of(places.gradients, from);
    if (places.aside[i][k] != GraphBuffer::kNone) {
      step.dx.push_back(tensor(places.aside[i][k], spec.shape({from}), ops->dtype()));
      step.additions.push_back({step.dx.back(), gradient});
    } else if (node.backward) {
      step.dx.push_back(gradient);
    }
  }
  for (std::size_t k : node.parameters) {
    step.w.push_back({nullptr, graph.layout[k].shape, ops->dtype()});
    step.dw.push_back({nullptr, graph.layout[k].shape, ops->dtype()});
  }
  const std::size_t work = places.workspaces[i];
  std::byte* const workspace =
      places.blocks[work].bytes > 0 ? places.at(buffer.data(), work) : nullptr;
  const std::uint32_t* const touched_places =
      node.source == GraphPlan::kNoSource ? nullptr : touched[node.source].places();
  step.forward = {.x = step.x,
                  .y = tensor_of(places.values, node.output),
                  .w = step.w,
                  .workspace = workspace,
                  .rows = rows,
                  .point = node.point,
                  .name = &node.name,
                  .places = touched_places,
                  .statistics = statistics() + node.statistics};
  step.again = step.forward;
  step.again.x = step.x_late;
  step.again.y = tensor_of(places.values_late, node.output);
  step.again.again = true;
  step.backward = {.x = step.x_late,
                   .y = step.again.y,
                   .dy = tensor_of(places.gradients, node.output),
                   .dx = step.dx,
                   .w = step.w,
                   .dw = step.dw,
                   .workspace = workspace,
                   .rows = rows,
                   .point = node.point,
                   .name = &node.name,
                   .accumulate = false,
                   .adds = places.adds[i],
                   .places = touched_places};
  return step;
}

void Graph::Plan::connect() {
  for (std::size_t i = 0; i < graph.sources.size(); ++i) {
    touched.emplace_back(graph.sources[i].rows, rows, places.at(buffer.data(), places.touched[i]));
  }
  if (!graph.statistics.empty())
    learnt = ops->allocate_shared(graph.statistics.back().range.end * sizeof(double));
  for (const Statistic& statistic : graph.statistics) {
    std::fill_n(statistics() + statistic.range.begin, statistic.range.size(), statistic.initial);
  }
  steps.reserve(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) steps.push_back(step_of(i));
  const std::size_t last = graph.storage.size() - 1, output = graph.storage[last];
  const DType dtype = ops->dtype();
  io.input = tensor(places.values[0], spec.input_shape(), dtype);
  io.output = tensor(places.values[output], spec.shape({last}), dtype);
  io.output_gradient = tensor(places.gradients[output], spec.shape({last}), dtype);
  io.target = tensor(places.target, {spec.target_columns()}, DType::kFloat32);
  io.losses = tensor(places.losses, {}, DType::kFloat64);
  io.correct = tensor(places.correct, {}, DType::kFloat64);
  io.ids = tensor(places.ids, {}, DType::kInt64).as<std::int64_t>();
}

}  // namespace lockstep::engine
