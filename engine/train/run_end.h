// SPDX-License-Identifier: MIT
// Functions that complete the messages about the end of a run, and about a run that continues.
#pragma once
#include <atomic>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/train/strategy.h"
#include "engine/train/trainer.h"

namespace lockstep::engine {

// Returns the error of lost or late ranks with places and a remedy in its text: "rank 1 is missing:
// bucket 0; rank 1 is pid 4711 on host node1" (only the first late ranks; texts about lost ones
// name their processes themselves), the remedy, and then what others wait for.
Error with_remedy(const Strategy& strategy, const Error& error, std::string_view remedy);

// Finds the first process that was interrupted, for the history. Collective.
void find_interrupt(Strategy& strategy, const std::atomic<int>* interrupt, History& history);

// Returns ", so the learning rate goes on with 0.007 instead of 0.019" if the length of a run
// changes it.
std::string rate_change(const optim::Optimizer& optimizer, const RunState& state,
                        std::int64_t steps);

}  // namespace lockstep::engine
