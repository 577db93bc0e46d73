// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/server_layout.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "engine/optim/update_segments.h"
#include "strategies/parameter_server/rpc/array_reader.h"

namespace lockstep::strategies {
namespace {

constexpr std::size_t kMostBytes = std::size_t(60) << 20;  // maximum bytes of one message

// In synchronous training a server adds up all workers' gradients of a shard, so the rows of a
// shard must fit into one message.
void require_one_message(const RowShards& rows, std::size_t width) {
  for (std::size_t table = 0; table < rows.tables().size(); ++table) {
    const engine::Parameter& parameter = rows.tables()[table];
    const std::size_t most =
        std::min(RowShards::kMostRows, kMostBytes / (parameter.whole[1] * width));
    engine::require(
        parameter.frozen || rows.most_rows(table) <= most, engine::Option::kPartition,
        "parameter_server, synchronous: a batch may touch {} rows of one shard of {}, and {} fit "
        "in one message: use smaller batches, or more shards",
        rows.most_rows(table), parameter.name, most);
  }
}

}  // namespace

ServerLayout lay_out(const engine::Graph& graph, engine::GraphPlan whole,
                     const engine::UpdateRule& rule, std::size_t servers,
                     const PlacementRules& rules, const UpdateOptions& updates) {
  const std::size_t width = engine::size_of(graph.dtype());
  std::vector<VarInfo> variables;
  std::vector<engine::Parameter> in_arena;
  for (const engine::Parameter& parameter : graph.layout()) {
    variables.push_back({parameter.name, parameter.whole, parameter.whole.elements() * width,
                         !parameter.frozen, parameter.compact});
    variables.back().decays = rule.weight_decay == 0 || engine::decays(rule, parameter);
    if (!parameter.compact) in_arena.push_back(parameter);
  }
  VariablePlacement placement = place_variables(std::move(variables), servers, rules);
  ArenaShards shards(in_arena, placement, width);
  RowShards rows(graph.layout(), placement);
  if (updates.synchronous) require_one_message(rows, wire_width(graph.dtype(), updates.bfloat16));
  return {std::move(placement),    std::move(shards), std::move(rows),
          std::move(whole.layout), whole.parameters,  rule};
}

std::string explain_tables(const ServerLayout& layout) {
  if (layout.rows.tables().empty()) return "";
  std::vector<std::string> names;
  for (const engine::Parameter& table : layout.rows.tables()) names.push_back(table.name);
  const bool lazy = layout.rule.slots() > 0 || layout.rule.weight_decay != 0;
  return fmt::format(
      "\ntables: only the rows of {} that a batch touches travel{}", fmt::join(names, " and "),
      lazy ? "; the optimizer updates only these rows (momentum, moments and decay of "
             "other rows wait until they are touched)"
           : "");
}

}  // namespace lockstep::strategies
