// SPDX-License-Identifier: MIT
// What is known of the end of a run besides its error.
#pragma once
#include <atomic>
#include <string>

#include "engine/base/error.h"
#include "engine/train/strategy.h"
#include "engine/train/trainer.h"

namespace lockstep::engine {

// Returns "; rank 1 is on host node1" for the late ranks of an error. Texts about lost ranks name
// their hosts themselves.
std::string hosts_of(const Strategy& strategy, const Error& error);

// Finds the first process that was interrupted, for the history. Collective.
void find_interrupt(Strategy& strategy, const std::atomic<int>* interrupt, History& history);

}  // namespace lockstep::engine
