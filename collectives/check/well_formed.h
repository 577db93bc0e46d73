// SPDX-License-Identifier: MIT
// Checks the form of plans, before their meaning: every number in a step must name something that
// exists. The verifier and the executor can follow a well-formed plan without bounds checks. The
// functions are pure and cost O(steps).
#pragma once
#include <string>

#include "collectives/plan/plan.h"

namespace lockstep::collectives {

// Returns an empty string if well formed; else the error with its plan, rank, lane and step.
std::string malformed(const StepPlan& step);

// Returns the location of an error: "plan bucket 0: sum, rank 1 lane 0 step 3 (reduce)".
std::string place_of(const Plan& plan, int rank, int lane, std::size_t step);

}  // namespace lockstep::collectives
