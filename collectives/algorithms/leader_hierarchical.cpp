// SPDX-License-Identifier: MIT
// The picture of 2018: on each host one leader adds the numbers of all its ranks, the leaders form
// a ring, and each propagates the result inside its host. The same bytes on the wire as with many
// leaders, in fewer messages; but one rank of a host does all its work. On one host this is direct.
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
