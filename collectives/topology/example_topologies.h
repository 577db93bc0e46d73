// SPDX-License-Identifier: MIT
// Clusters that one may not have: for `lockstep plan --topology NAME`, and for the tests of the
// planner. Some have devices or fast networks of their own; any other name HOSTSxRANKS is of
// servers with a processor for each rank over 25 Gbit/s Ethernet. Their costs are round figures of
// such machines, as published, not measurements. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "collectives/topology/topology.h"

namespace lockstep::collectives {

struct ExampleTopology {
  std::string_view name;   // "4x4": hosts x ranks on each
  std::string_view about;  // one line
};
const std::vector<ExampleTopology>& example_topologies();
inline constexpr int kMostExampleHosts = 1024, kMostExampleRanksOfAHost = 32;
inline constexpr int kMostExampleRanks = 2048;

// Whether it has the form of such a name: two whole numbers with an x between them.
bool names_example(std::string_view name);
// Throws Error(kInvalid) for what has another form, and for too many hosts or ranks, or none.
Topology example_topology(std::string_view name);

// Equal hosts of so many ranks, a process each with `cores` processors: h0, h1, ...
Topology equal_hosts(int hosts, int ranks, const HostCosts& costs, const WireCosts& wire,
                     int cores = 1, std::string_view device = "cpu");

}  // namespace lockstep::collectives
