// SPDX-License-Identifier: MIT
// Map of a machine's processors: which are hyperthreads of one core, which share their last-level
// cache, and on which NUMA node they are. It also has the memory of each node. hwloc finds the map
// of this machine, or of one that a line describes. The interface has no types of hwloc; a build
// without it uses `absent.cpp`. Plain values; thread-safe.
#pragma once
#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::collectives {

// Tells where a processor is. Cores and caches have the least number of their processors, NUMA
// nodes their system's number.
struct PlacedProcessor {
  int number = 0;  // system's number
  int core = 0, cache = 0, node = 0;
  auto operator<=>(const PlacedProcessor&) const = default;
};

struct NumaNode {
  int number = 0;
  std::size_t memory = 0;  // bytes; 0: unknown
  auto operator<=>(const NumaNode&) const = default;
};

struct MachineMap {
  std::vector<PlacedProcessor> processors;  // ascending by number
  std::vector<NumaNode> nodes;              // nodes with processors, ascending by number
  std::size_t last_cache = 0;               // bytes of one cache; 0: unknown
  bool operator==(const MachineMap&) const = default;
};

namespace hwloc {

bool available();       // built with hwloc
std::string version();  // "2.9.0"; empty if not available

// Returns the part of this machine that the control group leaves to this process, or nothing if
// hwloc is not available or does not know. It takes some milliseconds, more on machines with many
// processors.
std::optional<MachineMap> this_machine();

// Returns the machine of a description that hwloc can read, with levels from the outermost to
// processors. "numa:2 core:4 pu:2" is two NUMA nodes with four cores of two hyperthreads each.
// "numa:2(memory=64GiB) ..." also sets the memory of the nodes. Allows up to 4096 processors.
// Throws Error(kInvalid) that says what is valid.
MachineMap described_machine(const std::string& description);

}  // namespace hwloc
}  // namespace lockstep::collectives
