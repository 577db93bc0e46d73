// SPDX-License-Identifier: MIT
// Turns a flag into a cluster: an example of collectives/topology/example_topologies.h, or a JSON
// file.
#pragma once
#include <string>

#include "collectives/topology/topology.h"

namespace lockstep::tools {

std::string example_names(const char* between);
// Returns the help text of such a flag. `what`: the purpose of the cluster.
std::string topology_help(const std::string& what);
// Returns the topology, which has at least one rank. Throws Error(kInvalid) and Error(kIo).
collectives::Topology described_topology(const std::string& name);

}  // namespace lockstep::tools
