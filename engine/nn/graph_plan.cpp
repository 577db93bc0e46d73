// SPDX-License-Identifier: MIT
#include "engine/nn/graph_plan.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

std::size_t align(std::size_t elements) {
  return (elements + GraphPlan::kAlignment - 1) / GraphPlan::kAlignment * GraphPlan::kAlignment;
}

// Counts the layers that read each value.
std::vector<std::size_t> count_readers(const GraphSpec& spec) {
  std::vector<std::size_t> readers(spec.nodes().size() + 1, 0);
  for (const GraphSpec::Node& node : spec.nodes()) {
    for (GraphSpec::Value value : node.inputs) ++readers[value.index];
  }
  return readers;
}

// Removes a node from the plan. See plan_nodes for `maker`.
PlannedNode take_node(std::size_t at, std::vector<std::size_t>& maker, std::size_t none,
                      GraphPlan& plan) {
  PlannedNode node = std::move(plan.nodes[at]);
  plan.nodes.erase(plan.nodes.begin() + std::ptrdiff_t(at));
  for (std::size_t& other : maker) {
    if (other == at) other = none;
    other -= other != none && other > at;
  }
  return node;
}

// Merges the maker of the second input of `node` into it, if the layers can do it. Nobody else may
// read that input, and both must belong to one block. The input then shares the storage of
// `node.output`.
void merge_maker(const GraphSpec& spec, const std::vector<std::size_t>& readers,
                 std::vector<std::size_t>& maker, PlannedNode& node, GraphPlan& plan) {
  const std::size_t none = spec.nodes().size(), input = node.inputs[1], at = maker[input];
  if (readers[input] != 1 || at == none || plan.nodes[at].block != node.block) return;
  std::shared_ptr<const Layer> merged = node.layer->with_maker(*plan.nodes[at].layer);
  if (!merged) return;
  const PlannedNode other = take_node(at, maker, none, plan);
  node.layer = std::move(merged);
  node.merged = other.name;
  node.inputs[1] = other.inputs[0];
  node.input_shapes[1] = other.input_shapes[0];
  plan.storage[input] = node.output;
}

// Merges a sum of two values into the maker of one of them, if nobody else reads that value and the
// maker can do it. The node then runs at the place of the sum, when both values exist, so it moves
// behind the nodes added since. Returns false if the sum runs by itself. See plan_nodes for
// `maker`.
bool fuse_add(const GraphSpec& spec, std::size_t i, const std::vector<std::size_t>& readers,
              std::vector<std::size_t>& maker, GraphPlan& plan) {
  const std::size_t none = spec.nodes().size();
  const GraphSpec::Node& sum = spec.nodes()[i];
  for (std::size_t k = 0; k < 2; ++k) {
    const std::size_t mine = sum.inputs[k].index, other = sum.inputs[1 - k].index;
    const std::size_t at = maker[mine];
    if (readers[mine] != 1 || at == none) continue;
    std::shared_ptr<const Layer> fused = plan.nodes[at].layer->with_add();
    if (!fused) continue;
    PlannedNode node = take_node(at, maker, none, plan);
    node.layer = std::move(fused);
    node.inputs.push_back(other);
    node.input_shapes.push_back(spec.shape({other}));
    plan.storage[mine] = plan.storage[node.output] = plan.storage[i + 1] = i + 1;
    node.output = i + 1;
    merge_maker(spec, readers, maker, node, plan);
    maker[i + 1] = plan.nodes.size();
    plan.nodes.push_back(std::move(node));
    return true;
  }
  return false;
}

// Decides which nodes run. `maker[v]` is the running node that makes value v, if there is one. A
// ReLU goes into the maker of its input, if nobody else reads that input and the maker can do it.
// So does a max pool, and then the values between are not stored; so does a sum of two values.
void plan_nodes(const GraphSpec& spec, GraphPlan& plan) {
  const std::size_t none = spec.nodes().size();
  const std::vector<std::size_t> readers = count_readers(spec);
  std::vector<std::size_t> maker(spec.nodes().size() + 1, none);
  plan.storage.resize(spec.nodes().size() + 1);
  plan.storage[0] = 0;
  for (std::size_t i = 0; i < spec.nodes().size(); ++i) {
    const GraphSpec::Node& node = spec.nodes()[i];
    const std::size_t output = i + 1;
    require(readers[output] > 0 || output == spec.nodes().size(),
            "model {}: nobody uses the output of {}; the last layer added is the model's output",
            spec.name(), node.name);
    if (node.layer->is_view()) {
      plan.storage[output] = plan.storage[node.inputs[0].index];
      continue;
    }
    const std::size_t before = node.inputs[0].index;
    if (node.layer->is_relu() && readers[before] == 1 && maker[before] != none) {
      PlannedNode& producer = plan.nodes[maker[before]];
      if (std::shared_ptr<const Layer> fused = producer.layer->with_relu()) {
        producer.layer = std::move(fused);
        plan.storage[output] = plan.storage[before];
        maker[output] = maker[before];
        continue;
      }
    }
    if (node.layer->is_add() && fuse_add(spec, i, readers, maker, plan)) continue;
    const std::size_t window = node.layer->max_pool_window();
    if (window > 0 && readers[before] == 1 && maker[before] != none) {
      PlannedNode& producer = plan.nodes[maker[before]];
      if (std::shared_ptr<const Layer> fused = producer.layer->with_max_pool(window)) {
        producer.layer = std::move(fused);
        producer.output = output;
        plan.storage[output] = output;
        plan.storage[before] = plan.storage[plan.storage[before]] = output;
        continue;
      }
    }
    PlannedNode planned;
    planned.name = node.name;
    planned.layer = node.layer;
    planned.block = node.block;
    for (GraphSpec::Value value : node.inputs) {
      planned.inputs.push_back(value.index);
      planned.input_shapes.push_back(spec.shape(value));
    }
    planned.output = output;
    plan.storage[output] = output;
    maker[output] = plan.nodes.size();
    plan.nodes.push_back(std::move(planned));
  }
}

// Finds the ids that pick the rows of each layer's sparse parameters; they must be known before
// forward.
void plan_sources(const GraphSpec& spec, GraphPlan& plan) {
  for (PlannedNode& node : plan.nodes) {
    for (const ParameterSpec& parameter : node.layer->parameters(node.input_shapes)) {
      if (!parameter.sparse) continue;
      const RowSource rows = node.layer->row_source(node.input_shapes);
      require(rows.fields > 0 && parameter.shape.rank() == 2 &&
                  parameter.shape[0] == rows.fields * rows.rows,
              "model {}: layer {}: the ids that its row_source names do not pick rows of {}, which "
              "is {}",
              spec.name(), node.name, parameter.name, to_string(parameter.shape));
      require(plan.storage[node.inputs[0]] == 0,
              "model {}: layer {}: its rows can be compact only where the ids lie in the model's "
              "input, not in the output of another layer",
              spec.name(), node.name);
      if (node.source != GraphPlan::kNoSource) continue;
      const auto known = std::ranges::find(plan.sources, rows, &GraphPlan::Source::rows);
      node.source = std::size_t(known - plan.sources.begin());
      if (known == plan.sources.end()) plan.sources.push_back({rows, node.name});
    }
  }
}

// Returns the full name of the k-th of `count` parameters, statistics or reductions of a node.
std::string full_name(const PlannedNode& node, std::size_t k, std::size_t count,
                      const std::string& name) {
  invariant(node.merged.empty() || count % 2 == 0, "a merged layer has as many as the other");
  const bool own = node.merged.empty() || k < count / 2;
  return (own ? node.name : node.merged) + "." + name;
}

// Places parameters in the order in which backward finishes them: nodes from the last to the first,
// within a node in the layer's order; then the frozen ones.
void plan_parameters(const GraphSpec& spec, std::size_t compact_rows, GraphPlan& plan) {
  const auto place = [&](PlannedNode& node, bool frozen, std::size_t& end) {
    const std::vector<ParameterSpec> specs = node.layer->parameters(node.input_shapes);
    node.parameters.resize(specs.size());
    for (std::size_t k = 0; k < specs.size(); ++k) {
      const std::string name = full_name(node, k, specs.size(), specs[k].name);
      if (spec.frozen(name) != frozen) continue;
      node.parameters[k] = plan.layout.size();
      const Shape& whole = specs[k].shape;
      const bool compact = specs[k].sparse && node.source != GraphPlan::kNoSource;
      Shape shape = whole;
      if (compact) {
        const std::size_t picked = compact_rows * plan.sources[node.source].rows.fields;
        shape = {std::min(whole[0], picked), whole[1]};
      }
      const Range range{end, end + shape.elements()};
      plan.layout.push_back({name, shape, range, specs[k].group, frozen, specs[k].initial,
                             specs[k].sparse, compact, whole, compact ? node.source : 0});
      end = align(range.end);
    }
  };
  std::size_t end = 0;
  for (std::size_t i = plan.nodes.size(); i-- > 0;) {
    const std::size_t begin = end;
    place(plan.nodes[i], false, end);
    plan.nodes[i].range = {begin, end};
  }
  plan.trainable = end;
  for (std::size_t i = plan.nodes.size(); i-- > 0;) place(plan.nodes[i], true, end);
  plan.parameters = end;
}

// A value's gradient is wanted if something trainable is at or below the layer that makes it.
void plan_gradients(GraphPlan& plan) {
  plan.wanted.assign(plan.storage.size(), false);
  for (PlannedNode& node : plan.nodes) {
    node.backward = !node.range.empty();
    for (std::size_t value : node.inputs) {
      if (plan.wanted[plan.storage[value]]) node.backward = true;
    }
    plan.wanted[node.output] = node.backward;
  }
  for (std::size_t v = 0; v < plan.wanted.size(); ++v)
    plan.wanted[v] = plan.wanted[plan.storage[v]];
}

void plan_reductions(GraphPlan& plan) {
  for (PlannedNode& node : plan.nodes) {
    node.point = int(plan.reductions.size());
    const std::vector<ReductionSpec> specs = node.layer->reductions(node.input_shapes);
    for (std::size_t k = 0; k < specs.size(); ++k) {
      plan.reductions.push_back({full_name(node, k, specs.size(), specs[k].name), specs[k].count});
    }
  }
}

void plan_statistics(GraphPlan& plan) {
  std::size_t end = 0;
  for (PlannedNode& node : plan.nodes) {
    node.statistics = end;
    const std::vector<StatisticSpec> specs = node.layer->statistics(node.input_shapes);
    for (std::size_t k = 0; k < specs.size(); ++k) {
      plan.statistics.push_back({full_name(node, k, specs.size(), specs[k].name),
                                 {end, end + specs[k].count},
                                 specs[k].initial});
      end += specs[k].count;
    }
  }
}

void plan_blocks(GraphPlan& plan) {
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (plan.nodes[i].block == 0) continue;
    const bool goes_on = i > 0 && plan.nodes[i - 1].block == plan.nodes[i].block;
    if (!goes_on) plan.blocks.push_back({i, i});
    plan.blocks.back().last = i;
  }
}

// Finds chains. A chain ends at a node, and grows upward by cheap nodes while all of these together
// cost at most an eighth of the last.
void plan_chains(const GraphSpec& spec, GraphPlan& plan) {
  constexpr double kCheap = 1.0 / 8;
  const std::vector<std::size_t> readers = count_readers(spec);
  const auto work = [&](std::size_t i) {
    const PlannedNode& node = plan.nodes[i];
    return node.layer->takes_slices() ? node.layer->work(node.input_shapes) : 0;
  };
  for (std::size_t last = plan.nodes.size(); last-- > 1;) {
    if (!plan.nodes[last].layer->ends_chain()) continue;
    std::size_t first = last;
    double before = 0;
    while (first > 0) {
      const PlannedNode& node = plan.nodes[first];
      const std::size_t from = node.inputs[0];
      const double more = work(first - 1);
      const bool chained = node.inputs.size() == 1 && from != 0 && readers[from] == 1 &&
                           plan.storage[from] == plan.nodes[first - 1].output;
      if (!chained || more == 0 || before + more > kCheap * work(last)) break;
      before += more;
      --first;
    }
    if (first == last) continue;
    plan.chains.insert(plan.chains.begin(), {first, last});
    last = first;
    if (last == 0) break;
  }
}

}  // namespace

GraphPlan plan_graph(const GraphSpec& spec, std::size_t compact_rows) {
  // Throws if there is no loss, or if the loss cannot judge the output.
  spec.target_columns();
  require(!spec.nodes().empty(), "model {} has no layers", spec.name());
  GraphPlan plan;
  plan_nodes(spec, plan);
  if (compact_rows > 0) plan_sources(spec, plan);
  plan_parameters(spec, compact_rows, plan);
  plan_gradients(plan);
  plan_reductions(plan);
  plan_statistics(plan);
  plan_blocks(plan);
  plan_chains(spec, plan);
  return plan;
}

}  // namespace lockstep::engine
