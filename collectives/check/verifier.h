// SPDX-License-Identifier: MIT
// Runs plans symbolically, before anything is executed. Each contribution must be added
// (multiplied, compared) exactly once and only by the plan's operation; a mean must be scaled
// exactly once. The verifier rejects reads before writes, races (by vector clocks), deadlocks and
// accesses to the memory of another host. Sends must match receives in length and type. All ranks
// must end with the same bits; roundings and the order of additions are tracked. The next execution
// of a plan must not overwrite too soon what the plan leaves to be read after its end. The verifier
// works on the elementary intervals between all offsets that occur. So cost depends on steps and
// ranks, not on counts. It is pure and thread-safe.
#pragma once
#include <string>

#include "collectives/plan/plan.h"
#include "collectives/plan/traffic.h"

namespace lockstep::collectives {

enum class Goal : std::uint8_t {
  kNothing,           // no result is required
  kSumEverywhere,     // all ranks end with the sum, in `result`
  kUpdateEverywhere,  // weights are updated once from whole sums everywhere
  kOneEverywhere,     // for each number, one rank's value ends everywhere
  kSumOfMySlice,      // each number's whole sum ends at its owner
};

// Returns an empty string if the plans are correct; else the error with its plan, rank, lane and
// step. All stages of a step run together: each begins on a rank when those in `after` have ended
// there.
std::string verify(const StepPlan& step, Goal goal, Space result = Space::kGradient);
std::string verify(const Plan& plan, Goal goal, Space result = Space::kGradient);

}  // namespace lockstep::collectives
