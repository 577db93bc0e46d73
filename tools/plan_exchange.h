// SPDX-License-Identifier: MIT
// The part of a plan's picture that shows which ranks exchange numbers: circles of ranks or hosts
// with arrows between them, and the order of rings. All of it is read from the plan's steps. Pure.
#pragma once
#include "collectives/plan/plan.h"
#include "collectives/topology/topology.h"
#include "tools/svg.h"

namespace lockstep::tools {

inline constexpr const char* kMessageColor = "#d9822b";
inline constexpr const char* kMemoryColor = "#4472a8";

// Draws below `top`, and returns the lower edge. Up to 16 ranks are drawn with all pairs. Of more
// ranks it draws the hosts, and the ranks of the first host. Draws nothing if no pair exchanges
// numbers.
double draw_exchange(Svg& svg, const collectives::Plan& plan, const collectives::Topology& topology,
                     double top);

}  // namespace lockstep::tools
