// SPDX-License-Identifier: MIT
// The algorithms of a step's sums in few words. Pure functions; any thread.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "collectives/cost/planner.h"

namespace lockstep::strategies {

// The fewest rules that give each of these sizes (bytes) its algorithm, as
// collectives/cost/size_rules.h reads them; one name alone is itself. A size between two that are
// not alike goes with the smaller.
std::string rules_text(const std::map<std::size_t, std::string>& chosen);

// "0.98 ms predicted for 4 MiB (next: ring, 1.57 ms)"; empty where there is no other algorithm.
std::string prediction(const collectives::Choice& choice);

// "ring for 2 buckets and direct for 1", of the algorithm of each bucket, in the order in which
// they come; one name alone is itself.
std::string counted(const std::vector<std::string>& algorithms);

}  // namespace lockstep::strategies
