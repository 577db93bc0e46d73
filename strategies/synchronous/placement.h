// SPDX-License-Identifier: MIT
// Where every variable lies and which bucket sums its gradient, as a table for people. A pure
// function: the same text for the same model, flags and devices.
#pragma once
#include <string>
#include <vector>

#include "engine/nn/graph.h"
#include "strategies/synchronous/step_design.h"

namespace lockstep::strategies {

// Variables in the order of the arena, which is that in which backward finishes their gradients.
// `devices`: of each rank.
std::string placement_table(const engine::Graph& graph, const StepDesign& design,
                            const std::vector<std::string>& devices);

}  // namespace lockstep::strategies
