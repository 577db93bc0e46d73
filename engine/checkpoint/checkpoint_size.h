// SPDX-License-Identifier: MIT
// How large a checkpoint will be, before there is one.
#pragma once
#include <cstdint>

#include "engine/nn/graph_spec.h"
#include "engine/ops/update_rule.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// Bytes of the arrays alone: weights, or their masters, what the optimizer keeps for each, and
// statistics. `dtype` is that of the graph. A pure function.
std::uint64_t checkpoint_bytes(const GraphSpec& graph, const UpdateRule& rule, DType dtype);

}  // namespace lockstep::engine
