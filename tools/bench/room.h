// SPDX-License-Identifier: MIT
// Whether memory holds what a benchmark is asked for: found out before anything is taken.
#pragma once
#include <cstddef>
#include <string>

#include "tools/bench/rank.h"

namespace lockstep::tools::bench {

// Of threads each maps what the others have, as processes do: throws Error(kMemory) where the
// system allows a process fewer mappings than so many ranks take, who take more for sums that
// are reproducible.
void require_mappings(int ranks, bool reproducible);

// Throws Error(kMemory) on all ranks where on some host there is not so much memory free for its
// ranks together; `bytes`: of each rank; `threads`: ranks are those of one process. `what` stands
// in front: "--max 900GiB". Collective; one thread a rank.
void require_room(const Rank& rank, bool threads, std::size_t bytes, const std::string& what);

}  // namespace lockstep::tools::bench
