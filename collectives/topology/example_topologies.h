// SPDX-License-Identifier: MIT
// Example clusters for `lockstep plan --topology NAME` and the planner's tests. Some have devices
// or fast networks. Any other name HOSTSxRANKS describes servers with one processor per rank over
// 25 Gbit/s Ethernet. The costs are round figures of such machines, as published, not measurements.
// All functions are pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "collectives/topology/topology.h"

namespace lockstep::collectives {

struct ExampleTopology {
  std::string_view name;   // "4x4": hosts x ranks per host
  std::string_view about;  // one line
};
const std::vector<ExampleTopology>& example_topologies();
inline constexpr int kMostExampleHosts = 1024, kMostExampleRanksOfAHost = 32;
inline constexpr int kMostExampleRanks = 2048;

// Returns whether the name has this form: two whole numbers with an x between them.
bool names_example(std::string_view name);
// Returns the topology of this name. Throws Error(kInvalid) if the name has another form, or if
// there are too many hosts or ranks, or none.
Topology example_topology(std::string_view name);

// Returns equal hosts h0, h1, ... of `ranks` ranks each. Each rank is a process with `cores`
// processors.
Topology equal_hosts(int hosts, int ranks, const HostCosts& costs, const WireCosts& wire,
                     int cores = 1, std::string_view device = "cpu");

}  // namespace lockstep::collectives
