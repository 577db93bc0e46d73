// SPDX-License-Identifier: MIT
#include "engine/nn/graph_plan.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

std::size_t align(std::size_t elements) {
  return (elements + GraphPlan::kAlignment - 1) / GraphPlan::kAlignment * GraphPlan::kAlignment;
}

// How many layers read each value.
std::vector<std::size_t> count_readers(const GraphSpec& spec) {
  std::vector<std::size_t> readers(spec.nodes().size() + 1, 0);
  for (const GraphSpec::Node& node : spec.nodes()) {
    for (GraphSpec::Value value : node.inputs) ++readers[value.index];
  }
  return readers;
}

// Decides which nodes run. `maker[v]` is the running node that makes value v, where there is one. A
// ReLU goes into the maker of its input where nobody else reads that input and the maker can do it;
// so does a max pool, and then the values between are nowhere.
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

// Which ids pick the rows of each layer's sparse parameters. The rows must be known before forward.
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

// Parameters in the order in which backward finishes them: nodes from the last to the first, within
// a node as the layer names them; then the frozen ones.
void plan_parameters(const GraphSpec& spec, std::size_t compact_rows, GraphPlan& plan) {
  const auto place = [&](PlannedNode& node, bool frozen, std::size_t& end) {
    const std::vector<ParameterSpec> specs = node.layer->parameters(node.input_shapes);
    node.parameters.resize(specs.size());
    for (std::size_t k = 0; k < specs.size(); ++k) {
      const std::string name = node.name + "." + specs[k].name;
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

// A value's gradient is wanted when something trainable lies at or below the layer that makes it.
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
    for (const ReductionSpec& reduction : node.layer->reductions(node.input_shapes)) {
      plan.reductions.push_back({node.name + "." + reduction.name, reduction.count});
    }
  }
}

// A chain ends at a node; cheap ones are taken in from there upwards, while all of them together
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
  spec.target_columns();  // throws where there is no loss, or none that can judge the output
  require(!spec.nodes().empty(), "model {} has no layers", spec.name());
  GraphPlan plan;
  plan_nodes(spec, plan);
  if (compact_rows > 0) plan_sources(spec, plan);
  plan_parameters(spec, compact_rows, plan);
  plan_gradients(plan);
  plan_reductions(plan);
  plan_chains(spec, plan);
  return plan;
}

}  // namespace lockstep::engine
