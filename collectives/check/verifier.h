// SPDX-License-Identifier: MIT
// Runs plans symbolically, before anything is executed: each contribution is added (multiplied,
// compared) exactly once and by the plan's operation alone, a mean is scaled exactly once, no read
// before write, no race (vector clocks), sends match receives in length and type, no deadlock, no
// memory of another host; all ranks end with the same bits (roundings and the order of additions
// are followed); what a plan leaves to be read when it has ended is not written too soon when it is
// executed again. Works on the elementary intervals between all offsets that occur, so cost depends
// on steps and ranks, not on counts. Pure; any thread.
#pragma once
#include <string>

#include "collectives/plan/plan.h"
#include "collectives/plan/traffic.h"

namespace lockstep::collectives {

enum class Goal : std::uint8_t {
  kNothing,           // only that nothing goes wrong on the way
  kSumEverywhere,     // every rank ends with the sum over all ranks, in `result`
  kUpdateEverywhere,  // every rank ends with weights that were updated once from whole sums
  kOneEverywhere,     // each number of one rank ends in all, the same one's in all
  kSumOfMySlice,      // the slices of the ranks together are the subject, each whole at its owner
};

// Empty when right; else what is wrong, with plan, rank, lane and step. All stages of a step at
// once: each begins on a rank when those in `after` have ended there.
std::string verify(const StepPlan& step, Goal goal, Space result = Space::kGradient);
std::string verify(const Plan& plan, Goal goal, Space result = Space::kGradient);

}  // namespace lockstep::collectives
