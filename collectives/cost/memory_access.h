// SPDX-License-Identifier: MIT
// Memory access of reductions. From some sizes on, results are written with non-temporal stores:
// they would not stay in the caches, and a plain store first fetches each line from memory. The
// sizes are measured (calibration.h), else the size of the last-level cache decides. In-place sums
// prefetch lines for writing, or for reading if that was measured to be faster. Results have the
// same bits in any case. Thread-safe.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "collectives/topology/link_costs.h"

namespace lockstep::collectives {

// Holds the settings in the form that ExecutorOptions takes.
struct MemoryAccess {
  std::size_t results = std::size_t(2) << 20;   // bytes that one step stores out of place
  std::size_t touched = std::size_t(32) << 20;  // bytes that a host's updates touch per step
  bool measured = false;                        // sizes are measured
  bool read_ahead = false;
  bool operator==(const MemoryAccess&) const = default;
};

// Returns the settings for a host of this machine.
MemoryAccess memory_access(const HostCosts& costs);

// Returns the end of a sentence: "for results from 2 MiB on, and for updates that touch more than
// 32 MiB (measured); sums in place prefetch lines to write them".
std::string sentence(const MemoryAccess& access);

// Holds the times of both kinds of stores at one size. `touched`: bytes that all ranks of a host
// touch. `results`: bytes that a step stores.
struct StoreTimes {
  double touched = 0, results = 0, plain = 0, streamed = 0;
};
// Sets the sizes between the largest at which non-temporal stores are slower and the next at which
// they are faster. Changes nothing if the times are unclear or non-temporal stores are never
// faster.
void decide_stores(HostCosts& costs, std::vector<StoreTimes> times);
// Returns whether prefetching lines for reading was clearly faster.
bool better_read_ahead(double written, double read);

}  // namespace lockstep::collectives
