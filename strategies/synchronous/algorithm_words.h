// SPDX-License-Identifier: MIT
// Texts about the algorithms of a step's sums. Pure functions; thread-safe.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "collectives/cost/planner.h"

namespace lockstep::strategies {

// Returns the fewest rules that give each of these sizes (bytes) its algorithm, in the format of
// collectives/cost/size_rules.h. If all sizes have the same algorithm, returns its name alone. A
// size between two with different algorithms gets that of the smaller one.
std::string rules_text(const std::map<std::size_t, std::string>& chosen);

// Returns e.g. "4 MiB: 0.98 ms predicted (next: ring, 1.57 ms)"; empty if there is no other
// algorithm. `with_update`: the times include the fused update.
std::string prediction(const collectives::Choice& choice, bool with_update);

// Returns e.g. "ring for 2 buckets and direct for 1" for the algorithms of the buckets, in order of
// appearance. If all are the same, returns the name alone.
std::string counted(const std::vector<std::string>& algorithms);

}  // namespace lockstep::strategies
