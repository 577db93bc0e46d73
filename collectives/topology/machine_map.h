// SPDX-License-Identifier: MIT
// Where the processors of a machine are: which are hyperthreads of one core, which share their last
// cache, on which NUMA node they and how much memory lie. Found by hwloc, of this machine, or of
// one that is described in a line. The seam is free of hwloc's types; a build without it has
// `absent.cpp` behind it. Plain values; any thread.
#pragma once
#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::collectives {

// Cores and caches are called by the least number of their processors, NUMA nodes as the system
// calls them.
struct PlacedProcessor {
  int number = 0;  // of the system
  int core = 0, cache = 0, node = 0;
  auto operator<=>(const PlacedProcessor&) const = default;
};

struct NumaNode {
  int number = 0;
  std::size_t memory = 0;  // bytes; 0: not known
  auto operator<=>(const NumaNode&) const = default;
};

struct MachineMap {
  std::vector<PlacedProcessor> processors;  // ascending by number
  std::vector<NumaNode> nodes;              // that have processors, ascending by number
  std::size_t last_cache = 0;               // bytes of one; 0: not known
  bool operator==(const MachineMap&) const = default;
};

namespace hwloc {

bool available();       // built with it
std::string version();  // "2.9.0"; empty where not available

// All of this machine that the control group leaves to this process; none where hwloc is not there
// or does not know. Some milliseconds, more on machines with many processors.
std::optional<MachineMap> this_machine();

// Of a description as hwloc reads it, levels from the outermost to processors: "numa:2 core:4 pu:2"
// is two NUMA nodes with four cores of two hyperthreads each, "numa:2(memory=64GiB) ..." says what
// memory they have. Up to 4096 processors. Throws Error(kInvalid), saying what would be right.
MachineMap described_machine(const std::string& description);

}  // namespace hwloc
}  // namespace lockstep::collectives
