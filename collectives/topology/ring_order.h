// SPDX-License-Identifier: MIT
// How a ring goes through a cluster, from the links that it has. A pure function of the topology,
// so ranks that hold the same one go the same way. Any thread.
//
// Hosts follow each other in the order of their numbers, with all ranks of each side by side: so
// for H > 1 hosts exactly H edges are between hosts. Within a host the ring goes along the
// strongest links: of all ways through its devices, round in a circle where there is no other host,
// it takes one whose weakest link is as strong as can be; of these the first in the order of the
// numbers. Where all links of a host are alike, and where ranks share one memory, that is the order
// of the numbers. Two devices without a direct link have the bandwidth of their ports.
//
// Found exactly for up to 16 ranks of a host, in a few milliseconds at most. Of more, each is
// followed by the one that its strongest link leads to.
//
// Prices and pictures go by it. What runs goes by the numbers of the ranks: no topology that is
// found, and not described, has links between devices.
#pragma once
#include <vector>

#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// All ranks, in the order in which they stand in a ring: for Request::order.
std::vector<int> ring_order(const Topology& topology);

}  // namespace lockstep::collectives
