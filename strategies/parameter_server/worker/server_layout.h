// SPDX-License-Identifier: MIT
// Holds the placement of a model's elements on the servers. Made once, when a job opens; then
// constant.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "engine/nn/graph.h"
#include "engine/nn/graph_plan.h"
#include "strategies/parameter_server/cluster/placement_rules.h"
#include "strategies/parameter_server/worker/arena_shards.h"
#include "strategies/parameter_server/worker/row_shards.h"
#include "strategies/parameter_server/worker/update_options.h"

namespace lockstep::strategies {

struct ServerLayout {
  VariablePlacement placement;
  ArenaShards shards;                    // shards of the graph's arena
  RowShards rows;                        // tables that the graph holds in part
  std::vector<engine::Parameter> whole;  // the arena's layout if it held all tables
  std::size_t whole_elements = 0;        // elements of that arena
  engine::UpdateRule rule;
};

// Places the graph's parameters on servers. `whole`: the same graph with whole tables. Throws
// Error(kInvalid) if a rule cannot be followed. In synchronous training it also throws if the rows
// of a shard that a batch may touch do not fit into one message.
ServerLayout lay_out(const engine::Graph& graph, engine::GraphPlan whole,
                     const engine::UpdateRule& rule, std::size_t servers,
                     const PlacementRules& rules, const UpdateOptions& updates);

// Returns a line, preceded by a line end, with the tables that travel by rows; empty if there are
// none.
std::string explain_tables(const ServerLayout& layout);

}  // namespace lockstep::strategies
