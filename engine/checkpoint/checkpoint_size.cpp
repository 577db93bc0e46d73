// SPDX-License-Identifier: MIT
#include "engine/checkpoint/checkpoint_size.h"

#include "engine/nn/graph_plan.h"

namespace lockstep::engine {

std::uint64_t checkpoint_bytes(const GraphSpec& graph, const UpdateRule& rule, DType dtype) {
  const GraphPlan plan = plan_graph(graph);
  std::uint64_t bytes = 0;
  for (const Parameter& parameter : plan.layout) {
    const std::uint64_t arrays = parameter.frozen ? 1 : 1 + rule.slots();
    bytes += arrays * parameter.shape.elements() * size_of(computed_in(dtype));
  }
  for (const Statistic& statistic : plan.statistics)
    bytes += statistic.range.size() * sizeof(double);
  return bytes;
}

}  // namespace lockstep::engine
