// SPDX-License-Identifier: MIT
// What training with parameter servers cannot do. Throw Error(kInvalid) that says what can. Pure.
#pragma once
#include "engine/nn/graph.h"
#include "engine/ops/update_rule.h"

namespace lockstep::strategies {

// No update may need all gradients at once: servers see them in parts.
void require_in_parts(const engine::UpdateRule& rule);
// No layer may need the other replicas, which do not meet.
void require_alone(const engine::Graph& graph);

}  // namespace lockstep::strategies
