// SPDX-License-Identifier: MIT
// Checks that memory suffices for a benchmark before anything is allocated.
#pragma once
#include <cstddef>
#include <string>

#include "tools/bench/rank.h"

namespace lockstep::tools::bench {

// Throws Error(kMemory) if the system allows a process fewer mappings than `ranks` threads need.
// Threads map each other's memory as processes do, and reproducible sums need more mappings.
void require_mappings(int ranks, bool reproducible);

// Throws Error(kMemory) on all ranks if a host has too little free memory for its ranks together.
// `bytes`: per rank. `threads`: the ranks are threads of one process. `what`: the beginning of the
// message, such as "--max 900GiB". Collective; one thread per rank.
void require_room(const Rank& rank, bool threads, std::size_t bytes, const std::string& what);

}  // namespace lockstep::tools::bench
