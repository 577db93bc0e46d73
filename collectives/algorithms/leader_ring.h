// SPDX-License-Identifier: MIT
// The ring between hosts that both hierarchical algorithms are made of. Pure.
#pragma once
#include <string>

#include "collectives/algorithms/leaders.h"

namespace lockstep::collectives {

// An all-reduce: with at most `most` leaders a host, each with a ring of its own.
Plan leader_ring(const Request& request, std::string name, int most);
std::size_t leader_ring_scratch(const Request& request, int most);

}  // namespace lockstep::collectives
