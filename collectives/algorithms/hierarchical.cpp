// SPDX-License-Identifier: MIT
// Hierarchical all-reduce in two dimensions. Inside a host every rank leads a slice: it reads it
// from all ranks and stores it into all, as direct does. Between hosts the leaders of each slice
// form a ring, all slices at once. So every rank works, and each host sends 2 (H - 1) / H S, which
// is the lower bound. circle.cpp fuses reading, sending and storing. On one host this is direct.
#include "collectives/algorithms/algorithms.h"
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
