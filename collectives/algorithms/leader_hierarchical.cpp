// SPDX-License-Identifier: MIT
// Hierarchical all-reduce with one leader per host (the scheme of 2018). The leader adds the
// numbers of all ranks of its host, the leaders form a ring, and each copies the result to its
// host. It sends as many bytes as with many leaders in fewer messages, but one rank of a host does
// all its work. On one host this is direct.
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/exchange_plans.h"

namespace lockstep::collectives {

Plan leader_hierarchical_all_reduce(const Request& request) {
  return among_leaders(request, "leader_hierarchical", 1, circle_of_leaders(request));
}

std::size_t leader_hierarchical_scratch(const Request& request) {
  return among_leaders_scratch(request, 1, circle_of_leaders(request));
}

std::string_view leader_hierarchical_same(const Request& request) {
  if (direct_refusal(request.host).empty()) return "direct";
  const RanksOfHosts ranks = ranks_of_hosts(request);
  if (ranks.least > 1) return "";
  return ranks.most == 1 ? hierarchical_same(request) : "hierarchical";
}

}  // namespace lockstep::collectives
