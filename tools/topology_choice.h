// SPDX-License-Identifier: MIT
// A cluster that a flag names: an example of collectives/topology/example_topologies.h, or a JSON
// file.
#pragma once
#include <string>

#include "collectives/topology/topology.h"

namespace lockstep::tools {

std::string example_names(const char* between);
// For the help of such a flag, behind what the cluster is for.
std::string topology_help(const std::string& what);
// At least one rank. Throws Error(kInvalid) and Error(kIo), saying what is wrong.
collectives::Topology described_topology(const std::string& name);

}  // namespace lockstep::tools
