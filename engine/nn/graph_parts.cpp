// SPDX-License-Identifier: MIT
#include "engine/nn/graph_parts.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "engine/base/error.h"
#include "engine/nn/host_layer.h"
#include "engine/nn/host_loss.h"

namespace lockstep::engine {

Graph::Plan::Plan(const GraphSpec& s, Ops& o, std::size_t r, GraphOptions options)
    : spec(s),
      ops(&o),
      rows(r),
      graph(placed(plan_graph(s, options.compact_rows ? r : 0), o, options)),
      slice_rows(o.slice_rows()) {
  place_loss(options);
  require(rows > 0, "model {}: a replica must hold at least one example", spec.name());
  plan_again(options.recompute);
  plan_slices();
  plan_moments();
  plan_apart();
  plan_values();
  plan_gradients();
  plan_touched();
  place();
}

namespace {

// Of a layer or a loss, by `what`, that touches its operands itself: it needs them in memory of the
// host.
void require_fallback(const std::string& what, const Ops& ops, const GraphOptions& options) {
  require(options.fallback != nullptr,
          "{} has no kernels for {} on {}: it touches memory of the host itself. Give it some "
          "(on_device), or let it run on the host (TrainerOptions::fallback)",
          what, name(ops.dtype()), options.device.empty() ? "the device" : options.device);
}

}  // namespace

GraphPlan Graph::Plan::placed(GraphPlan plan, const Ops& ops, const GraphOptions& options) {
  for (PlannedNode& node : plan.nodes) {
    if (ops.in_host_memory() || node.layer->on_device()) continue;
    require_fallback(fmt::format("layer {} ({})", node.name, node.layer->describe()), ops, options);
    node.layer = std::make_shared<HostLayer>(node.layer, *options.fallback);
  }
  return plan;
}

void Graph::Plan::place_loss(const GraphOptions& options) {
  for (const PlannedNode& node : graph.nodes)
    if (dynamic_cast<const HostLayer*>(node.layer.get()) != nullptr) fallbacks.push_back(node.name);
  loss = spec.shared_loss();
  if (ops->in_host_memory() || loss->on_device()) return;
  require_fallback(fmt::format("the loss ({})", loss->describe()), *ops, options);
  loss = std::make_shared<HostLoss>(loss, *options.fallback);
  fallbacks.push_back("the loss");
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
    const auto [first, last] = graph.chains[k];
    const auto in_block = [](const PlannedNode& node) { return node.block != 0; };
    if (recomputes && std::any_of(graph.nodes.begin() + std::ptrdiff_t(first),
                                  graph.nodes.begin() + std::ptrdiff_t(last) + 1, in_block)) {
      continue;  // blocks go through whole
    }
    for (std::size_t i = first; i <= last; ++i) chain_of[i] = k;
  }
}

// A value is inner where it is made in a block, not by its last layer, and read there alone. Which
// of them backward needs is found from the block's end: what a backward reads, and what a layer
// reads that runs again for it.
void Graph::Plan::plan_again(bool recompute) {
  recomputes = recompute;
  again.assign(graph.nodes.size(), false);
  inner.assign(graph.storage.size(), false);
  if (!recompute) return;
  require(!graph.blocks.empty(),
          "model {} has no blocks that could be computed again: leave recompute out, or mark some "
          "(GraphSpec::begin_block)",
          spec.name());
  for (const Block& block : graph.blocks) {
    for (std::size_t i = block.last; i-- > block.first;) {
      const std::size_t value = graph.nodes[i].output;
      inner[value] = value != graph.storage.back();
      bool needed = graph.nodes[i].backward && graph.nodes[i].layer->backward_reads_output();
      for (std::size_t j = 0; j < graph.nodes.size(); ++j) {
        const PlannedNode& reader = graph.nodes[j];
        for (std::size_t k = 0; k < reader.inputs.size(); ++k) {
          if (graph.storage[reader.inputs[k]] != value) continue;
          if (j > block.last) inner[value] = false;
          needed |= again[j] || (reader.backward && reader.layer->backward_reads_input(k));
        }
      }
      again[i] = needed && inner[value];
    }
  }
}

std::size_t Graph::Plan::block_that_ends(std::size_t i) const {
  if (!recomputes) return kNone;
  const auto found = std::ranges::find(graph.blocks, i, &Block::last);
  return found == graph.blocks.end() ? kNone : std::size_t(found - graph.blocks.begin());
}

void Graph::Plan::plan_moments() {
  again_moment.assign(graph.nodes.size(), kNone);
  backward_moment.assign(graph.nodes.size(), kNone);
  std::size_t moment = loss_moment() + 1;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const std::size_t block = block_that_ends(i);
    if (block != kNone) {
      for (std::size_t k = graph.blocks[block].first; k < i; ++k) {
        if (again[k]) again_moment[k] = moment++;
      }
    }
    backward_moment[i] = moment++;
  }
}

// Gradients of weights go apart while the layers read at most `apart_bytes` together; a larger
// layer goes apart alone. Where a layer reads a multiple of that, its kernels and most others fill
// the device, and two at once only take the cache from each other: then none does.
void Graph::Plan::plan_apart() {
  constexpr std::size_t kFills = 4;
  const std::size_t count = graph.nodes.size(), window = ops->apart_bytes();
  apart.assign(count, false);
  running.assign(count, 0);
  ends_apart.assign(count, last_moment());
  std::deque<std::pair<std::size_t, std::size_t>> reading;  // nodes, and bytes
  std::size_t sum = 0;
  for (std::size_t i = count; i-- > 0 && window > 0;) {
    const PlannedNode& node = graph.nodes[i];
    const std::size_t from = graph.storage[node.inputs[0]];
    if (node.range.empty() || chain_of[i] != kNone || !graph.wanted[from]) continue;
    if (!node.layer->gradients_apart()) continue;
    const std::size_t mine =
        bytes(shape(from), ops->dtype()) + bytes(shape(node.output), ops->dtype());
    if (mine > kFills * window) return apart.assign(count, false);
    while (!reading.empty() && (sum + mine > window || reading.size() + 1 == Ops::kMostApart)) {
      ends_apart[reading.front().first] = backward_begin(i) - 1;
      sum -= reading.front().second;
      reading.pop_front();
    }
    apart[i] = true;
    running[i] = reading.size();
    reading.emplace_back(i, mine);
    sum += mine;
  }
}

// What is written by the loop or read by it lives all the time. The output of a layer lives from
// the layer's forward until its last reader: a forward, or a backward that runs and looks at it. An
// inner value of a block that runs again lives twice: until its last reader in forward, and again.
void Graph::Plan::plan_values() {
  const std::size_t count = graph.storage.size();
  const DType dtype = ops->dtype();
  values.assign(count, kNone);
  values[0] = book(bytes(spec.input_shape(), dtype), 0, last_moment());
  values_late.assign(count, kNone);
  values_late[0] = values[0];
  const auto extend = [&](std::size_t block, std::size_t moment) {
    blocks[block].last = std::max(blocks[block].last, moment);
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const PlannedNode& node = graph.nodes[i];
    // Of a chain, backward computes all layers but the last again, the frozen ones too.
    const bool chained = chain_of[i] != kNone;
    const bool late = chained ? graph.nodes[last_of(i)].backward : node.backward;
    const std::size_t size = bytes(shape(node.output), dtype, between(i));
    values[node.output] = book(size, forward_begin(i), forward_end(i));
    values_late[node.output] =
        again[i] ? book(size, again_moment[i], again_moment[i]) : values[node.output];
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t from = graph.storage[node.inputs[k]];
      extend(values[from], forward_end(i));
      if (again[i]) extend(values_late[from], again_moment[i]);
      if (late && (chained || node.layer->backward_reads_input(k)))
        extend(values_late[from], apart_end(i));
    }
    if (late && (chained || node.layer->backward_reads_output()))
      extend(values_late[node.output], backward_end(i));
    // A frozen layer has no backward, and may run again for a reader that has.
    const std::size_t kept = late ? apart_end(i) : forward_end(i);
    workspaces.push_back(book(node.layer->workspace(*ops, node.input_shapes, rows),
                              forward_begin(i), again[i] ? std::max(kept, again_moment[i]) : kept));
  }
  blocks[values[graph.storage[count - 1]]].last = last_moment();
  target_block = book(bytes({spec.target_columns()}, DType::kFloat32), 0, last_moment());
  ids_block = book(bytes({1}, DType::kInt64), 0, last_moment());
  losses_block = book(bytes({1}, DType::kFloat64), 0, last_moment());
  correct_block = book(bytes({1}, DType::kFloat64), 0, last_moment());
}

// A gradient lives from its first writer (the loss, or the last of the layers that read the value)
// to backward of the layer that makes the value. Every further writer adds to it, or has a block of
// its own for the moment of its backward.
void Graph::Plan::plan_gradients() {
  const DType dtype = ops->dtype();
  gradients.assign(graph.storage.size(), kNone);
  const std::size_t last_value = graph.storage[graph.storage.size() - 1];
  if (graph.wanted[last_value]) {
    gradients[last_value] = book(bytes(shape(last_value), dtype), loss_moment(), loss_moment());
  }
  aside.resize(graph.nodes.size());
  adds.assign(graph.nodes.size(), false);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const PlannedNode& node = graph.nodes[i];
    aside[i].assign(node.inputs.size(), kNone);
    if (!node.backward) continue;
    const std::size_t now = backward_begin(i), end = backward_end(i);
    invariant(gradients[node.output] != kNone, "a layer whose gradient nobody writes");
    blocks[gradients[node.output]].last = apart_end(i);
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t value = graph.storage[node.inputs[k]];
      if (!graph.wanted[value]) continue;
      const bool slice = chain_of[i] != kNone && i != first_of(i);
      if (gradients[value] == kNone) {
        gradients[value] = book(bytes(shape(value), dtype, slice), now, end);
      } else if (node.inputs.size() == 1 && node.layer->adds_gradient(*ops)) {
        adds[i] = true;
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
    const bool is_value = values[v] == block || values_late[v] == block,
               is_gradient = gradients[v] == block;
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

GraphMemory Graph::Plan::needed() const {
  const auto largest = std::ranges::max_element(blocks, {}, &Lifetime::bytes);
  return {memory.bytes, 0, name_of(std::size_t(largest - blocks.begin())), largest->bytes};
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
  const auto late = [&](std::size_t v) {
    return tensor(values_late[graph.storage[v]], shape(v), dtype);
  };
  const auto gradient = [&](std::size_t v) {
    return tensor(gradients[graph.storage[v]], shape(v), dtype);
  };
  for (std::size_t i = 0; i < graph.sources.size(); ++i) {
    touched.emplace_back(graph.sources[i].rows, rows,
                         buffer.data() + memory.offsets[touched_blocks[i]]);
  }
  if (!graph.statistics.empty())
    learnt = ops->allocate_shared(graph.statistics.back().range.end * sizeof(double));
  for (const Statistic& statistic : graph.statistics) {
    std::fill_n(statistics() + statistic.range.begin, statistic.range.size(), statistic.initial);
  }
  steps.resize(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const PlannedNode& node = graph.nodes[i];
    Step& step = steps[i];
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t from = node.inputs[k];
      step.x.push_back(value(from));
      step.x_late.push_back(late(from));
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
                    .places = places,
                    .statistics = statistics() + node.statistics};
    step.again = step.forward;
    step.again.x = step.x_late;
    step.again.y = late(node.output);
    step.again.again = true;
    step.backward = {.x = step.x_late,
                     .y = late(node.output),
                     .dy = gradient(node.output),
                     .dx = step.dx,
                     .w = step.w,
                     .dw = step.dw,
                     .workspace = workspace,
                     .rows = rows,
                     .point = node.point,
                     .name = &node.name,
                     .accumulate = false,
                     .adds = adds[i],
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
