// SPDX-License-Identifier: MIT
// Hierarchical in two dimensions: inside a host every rank leads a slice, which it reads from all
// ranks and stores into all, as direct does; between hosts the leaders of each slice form a ring,
// all slices at once. So every rank works, each number is read once from each rank of a host and
// written once into each, and the wire carries 2 (H - 1) / H S a host, the least there can be.
// Where hosts have unequal numbers of ranks there are as many slices as the smallest host has
// ranks. On one host this is direct.
#include <limits>

#include "collectives/algorithms/leader_ring.h"

namespace lockstep::collectives {
namespace {

constexpr int kAllRanks = std::numeric_limits<int>::max();

}  // namespace

Plan hierarchical_all_reduce(const Request& request) {
  return leader_ring(request, "hierarchical", kAllRanks);
}

std::size_t hierarchical_scratch(const Request& request) {
  return leader_ring_scratch(request, kAllRanks);
}

}  // namespace lockstep::collectives
