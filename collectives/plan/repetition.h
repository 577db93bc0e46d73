// SPDX-License-Identifier: MIT
// Unrolls a plan with alternating scratch into three consecutive executions, for the verifier. Each
// execution uses numbers of its own, behind those of the previous one. The first and the third use
// the same scratch. So the third overwrites what other ranks may still read of the first, unless
// arrivals prevent it. Later executions repeat this pattern. Each writes all scratch that it reads,
// so the last execution in the same scratch orders everything before it. The function is pure and
// costs O(steps).
#pragma once
#include "collectives/plan/plan.h"

namespace lockstep::collectives {

StepPlan repetition(const Plan& plan);

}  // namespace lockstep::collectives
