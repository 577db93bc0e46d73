// SPDX-License-Identifier: MIT
// How reductions go over memory. From which sizes on results are written past the caches, where
// they would not stay anyway: a plain store fetches each line from memory to write all of it.
// Decided by what a machine was measured to do (calibration.h), else by the size of its last cache.
// And which lines sums in place ask for ahead: to be written, where nothing else was measured. Bits
// never depend on it. Any thread.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "collectives/topology/link_costs.h"

namespace lockstep::collectives {

// As ExecutorOptions takes them.
struct MemoryAccess {
  std::size_t results = std::size_t(2) << 20;  // bytes that one step stores, apart from its sources
  std::size_t touched = std::size_t(32) << 20;  // bytes that the updates of a host touch in a step
  bool measured = false;                        // the sizes
  bool read_ahead = false;
  bool operator==(const MemoryAccess&) const = default;
};

// Of a host of this machine.
MemoryAccess memory_access(const HostCosts& costs);

// The end of a sentence: "results of 2 MiB and more, and updates that touch more than 32 MiB
// (measured); sums in place ask ahead for lines to be written".
std::string sentence(const MemoryAccess& access);

// What both take at one size: bytes that all ranks of a host touch, bytes that a step stores.
struct StoreTimes {
  double touched = 0, results = 0, plain = 0, streamed = 0;
};
// Between the largest size that streaming makes slower and the next that it makes faster; nothing
// where the times do not tell, or where streaming is never the faster.
void decide_stores(HostCosts& costs, std::vector<StoreTimes> times);
// Lines to be read where that was clearly faster.
bool better_read_ahead(double written, double read);

}  // namespace lockstep::collectives
