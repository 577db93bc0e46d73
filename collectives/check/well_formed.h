// SPDX-License-Identifier: MIT
// The form of plans, before their meaning: whether every number in a step names something that is
// there. What has this form the verifier and the executor can follow without looking out of bounds.
// Pure; cost: the number of steps.
#pragma once
#include <string>

#include "collectives/plan/plan.h"

namespace lockstep::collectives {

// Empty when well formed; else what is wrong, with plan, rank, lane and step.
std::string malformed(const StepPlan& step);

// "plan bucket 0: sum, rank 1 lane 0 step 3 (reduce)": where something is wrong.
std::string place_of(const Plan& plan, int rank, int lane, std::size_t step);

}  // namespace lockstep::collectives
