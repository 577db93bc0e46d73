// SPDX-License-Identifier: MIT
#include "engine/nn/graph_parts.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::engine {

Graph::Plan::Plan(const GraphSpec& s, Ops& o, std::size_t r, GraphOptions options)
    : spec(s),
      ops(&o),
      rows(r),
      graph(plan_graph(s, options.compact_rows ? r : 0)),
      slice_rows(o.slice_rows()) {
  require(rows > 0, "model {}: a replica must hold at least one example", spec.name());
  plan_slices();
  plan_values();
  plan_gradients();
  plan_touched();
  place();
}

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

void Graph::Plan::plan_touched() {
  for (const GraphPlan::Source& source : graph.sources) {
    touched_blocks.push_back(book(TouchedRows::bytes(source.rows, rows), 0, last_moment()));
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
  if (std::ranges::find(touched_blocks, block) != touched_blocks.end()) {
    return "the rows that a batch touches";
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
  for (std::size_t i = 0; i < graph.sources.size(); ++i) {
    touched.emplace_back(graph.sources[i].rows, rows,
                         buffer.data() + memory.offsets[touched_blocks[i]]);
  }
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
    const std::uint32_t* const places =
        node.source == GraphPlan::kNoSource ? nullptr : touched[node.source].places();
    step.forward = {.x = step.x,
                    .y = value(node.output),
                    .w = step.w,
                    .workspace = workspace,
                    .rows = rows,
                    .point = node.point,
                    .name = &node.name,
                    .places = places};
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
                     .accumulate = false,
                     .places = places};
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

}  // namespace lockstep::engine
