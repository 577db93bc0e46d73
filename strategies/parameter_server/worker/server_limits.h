// SPDX-License-Identifier: MIT
// Checks for unsupported training with parameter servers. They throw Error(kInvalid), which names
// alternatives. Pure.
#pragma once
#include "engine/nn/graph.h"
#include "engine/ops/update_rule.h"

namespace lockstep::strategies {

// Throws if an update needs all gradients at once, since servers see them in parts.
void require_in_parts(const engine::UpdateRule& rule);
// Throws if a layer needs the other replicas, which do not communicate.
void require_alone(const engine::Graph& graph);

}  // namespace lockstep::strategies
