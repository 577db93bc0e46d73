// SPDX-License-Identifier: MIT
// Order of a cluster's ranks in a ring, chosen by its links. It is a pure function of the topology,
// so ranks with the same topology get the same order. Thread-safe.
//
// Hosts follow each other by number, with all ranks of each adjacent. So for H > 1 hosts exactly H
// edges are between hosts. Within a host the ring uses the strongest links: of all paths through
// its devices, it takes one whose weakest link is as strong as possible, and of these the first by
// number. If there is no other host, paths are cycles. If all links of a host are alike, or ranks
// share one memory, that is the order by number. Two devices without a direct link have the
// bandwidth of their ports.
//
// The result is exact for up to 16 ranks per host and takes a few milliseconds at most. With more
// ranks, each is followed by the one that its strongest link leads to.
//
// Predicted times and plots use this order. Executed plans use the order by number.
#pragma once
#include <vector>

#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// Returns all ranks in their order in a ring, for Request::order.
std::vector<int> ring_order(const Topology& topology);

}  // namespace lockstep::collectives
