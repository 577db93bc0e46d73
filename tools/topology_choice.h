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
//
// A file needs only the names of hosts. The defaults are one rank per host, one processor per rank
// and the costs of collectives/topology/link_costs.h:
//   {"hosts": [{"name": "node", "count": 4, "ranks": 8, "cores": 16,
//               "costs": {"signal_seconds": 5e-7,
//                         "passes": [{"bytes": 4e6, "core_bytes_per_second": 4e10,
//                                     "host_bytes_per_second": 3e11}]}}],
//    "wire": {"latency_seconds": 2e-5, "bytes_per_second": 1.17e9}}
// Instead of "cores", "numa_nodes" and "memory" a host may have "machine", a description in the
// words of hwloc: "numa:2(memory=64GiB) core:8 pu:2". A host whose ranks are devices has
// "device": "cuda:0", and in its costs "link": "nvlink" or "pcie", "port_bytes_per_second" (through
// a switch) and "links": [{"a": 0, "b": 1, "bytes_per_second": 5e10}] between its ranks.
// Contradictions are refused, such as links of a host whose "link" is memory.
collectives::Topology described_topology(const std::string& name);

}  // namespace lockstep::tools
