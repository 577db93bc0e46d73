// SPDX-License-Identifier: MIT
// Functions that complete the messages about the end of a run, and about a run that continues.
#pragma once
#include <atomic>
#include <string>

#include "engine/base/error.h"
#include "engine/train/strategy.h"
#include "engine/train/trainer.h"

namespace lockstep::engine {

// Returns "; rank 1 is pid 4711 on host node1" for the first late ranks of an error. Texts about
// lost ranks name their processes themselves.
std::string places_of(const Strategy& strategy, const Error& error);

// Finds the first process that was interrupted, for the history. Collective.
void find_interrupt(Strategy& strategy, const std::atomic<int>* interrupt, History& history);

// Returns ", so the learning rate goes on with 0.007 instead of 0.019" if the length of a run
// changes it.
std::string rate_change(const optim::Optimizer& optimizer, const RunState& state,
                        std::int64_t steps);

}  // namespace lockstep::engine
