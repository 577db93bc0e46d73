// SPDX-License-Identifier: MIT
// For the verifier: a plan whose scratch alternates, as a rank executes it three times, one after
// the other. Each time on other numbers, which lie behind those of the time before; the first and
// the third time in the same scratch. So the third writes what somebody may still read of the first
// where arrivals do not forbid it. Later executions repeat this: each writes all that it reads of
// its scratch, so what came before the last execution in the same scratch is ordered by that one.
// Pure; cost: the number of steps.
#pragma once
#include "collectives/plan/plan.h"

namespace lockstep::collectives {

StepPlan repetition(const Plan& plan);

}  // namespace lockstep::collectives
