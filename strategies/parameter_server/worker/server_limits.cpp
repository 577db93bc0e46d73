// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/server_limits.h"

#include "engine/base/error.h"

namespace lockstep::strategies {

using engine::require;

void require_in_parts(const engine::UpdateRule& rule) {
  require(rule.kind != engine::UpdateKind::kLars,
          "parameter_server: lars needs the norms of whole weights and of their gradients at once, "
          "and servers see them in parts: train with another optimizer, or with another strategy");
  require(
      rule.needs() == engine::Needs::kNothing,
      "parameter_server: clipping needs the norm of all gradients, and no server sees them all: "
      "train without it, or with another strategy");
}

void require_alone(const engine::Graph& graph) {
  // Statistics are checked first: local statistics, chosen to avoid the sums, would be refused as
  // well.
  require(graph.statistics().empty(),
          "parameter_server: {} is learnt without gradients, and servers hold none of such: train "
          "models with batch norm by mirrored or collective_all_reduce",
          graph.statistics().empty() ? "" : graph.statistics()[0].name);
  require(graph.reductions().empty(),
          "parameter_server: {} sums over replicas, which do not meet here: train models with such "
          "by mirrored or collective_all_reduce",
          graph.reductions().empty() ? "" : graph.reductions()[0].name);
}

}  // namespace lockstep::strategies
