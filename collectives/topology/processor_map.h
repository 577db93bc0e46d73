// SPDX-License-Identifier: MIT
// Map of the processors that may run this process. It comes from hwloc if this build has it. Else
// it has the NUMA nodes that the kernel lists, and every processor is a core of its own. Plain
// values; thread-safe.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/topology/machine_map.h"

namespace lockstep::collectives {

// Returns the map of the calling thread's affinity, which respects the control group's cpuset. It
// reads /proc and /sys in some milliseconds.
MachineMap processor_map();

// Returns the part of the map with these processors and their nodes. A processor that the map does
// not know becomes a core of its own on the map's first node.
MachineMap part_of(const MachineMap& map, std::span<const int> processors);

// Merges the parts of one machine that several processes know.
MachineMap together(const MachineMap& a, const MachineMap& b);

// Returns the node of all these processors, or nothing if they are on several nodes or there are
// none.
std::optional<int> node_of(const MachineMap& map, std::span<const int> processors);

std::vector<int> numbers(const MachineMap& map);  // processor numbers, ascending

// Describes each node for people: "node 0: 8 processors on 4 cores, 31.2 GiB".
std::vector<std::string> describe_nodes(const MachineMap& map);

}  // namespace lockstep::collectives
