// SPDX-License-Identifier: MIT
// A table of variables, with the devices and the bucket of each gradient, for users. A pure
// function: equal models, flags and devices have equal tables.
#pragma once
#include <string>
#include <vector>

#include "engine/nn/graph.h"
#include "strategies/synchronous/step_design.h"

namespace lockstep::strategies {

// Lists variables in the order of the arena, in which backward finishes their gradients. `devices`:
// one per rank.
std::string placement_table(const engine::Graph& graph, const StepDesign& design,
                            const std::vector<std::string>& devices);

}  // namespace lockstep::strategies
