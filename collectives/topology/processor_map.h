// SPDX-License-Identifier: MIT
// The map of the processors that may run this process: by hwloc, where this build has it; else what
// the kernel says of NUMA nodes, with every processor a core of its own. Plain values, any thread.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/topology/machine_map.h"

namespace lockstep::collectives {

// Of those that may run the calling thread: its affinity, which holds the control group's cpuset.
// Reads /proc and /sys: some milliseconds.
MachineMap processor_map();

// Of these alone, and the nodes that they belong to. What the map does not know is a core of its
// own on its first node.
MachineMap part_of(const MachineMap& map, std::span<const int> processors);

// The parts of one machine that several processes know, as one.
MachineMap together(const MachineMap& a, const MachineMap& b);

// The node to which all of these belong; none where they are of several, or none.
std::optional<int> node_of(const MachineMap& map, std::span<const int> processors);

std::vector<int> numbers(const MachineMap& map);  // of the processors, ascending

// For people, a node each: "node 0: 8 processors on 4 cores, 31.2 GiB".
std::vector<std::string> describe_nodes(const MachineMap& map);

}  // namespace lockstep::collectives
