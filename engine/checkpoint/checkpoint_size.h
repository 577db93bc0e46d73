// SPDX-License-Identifier: MIT
// Predicts the size of a checkpoint before it exists.
#pragma once
#include <cstdint>

#include "engine/nn/graph_spec.h"
#include "engine/ops/update_rule.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// Returns the bytes of the arrays alone: weights (or their masters), the optimizer's slots, and
// statistics. `dtype`: the dtype of the graph. Pure.
std::uint64_t checkpoint_bytes(const GraphSpec& graph, const UpdateRule& rule, DType dtype);

}  // namespace lockstep::engine
