// SPDX-License-Identifier: MIT
// Hierarchical in two dimensions: inside a host every rank leads a slice, which it reads from all
// ranks and stores into all, as direct does; between hosts the leaders of each slice form a ring,
// all slices at once. So every rank works, and the wire carries 2 (H - 1) / H S a host, the least
// there can be. circle.cpp says how reading, sending and storing become one. On one host this is
// direct.
#include "collectives/algorithms/exchange_plans.h"

namespace lockstep::collectives {

Plan hierarchical_all_reduce(const Request& request) {
  return among_leaders(request, "hierarchical", kEveryRank, circle_of_leaders(request));
}

std::size_t hierarchical_scratch(const Request& request) {
  return among_leaders_scratch(request, kEveryRank, circle_of_leaders(request));
}

std::string_view hierarchical_same(const Request& request) {
  if (direct_refusal(request.host).empty()) return "direct";
  return ranks_of_hosts(request).most == 1 ? "ring" : "";
}

}  // namespace lockstep::collectives
