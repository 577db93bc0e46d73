// SPDX-License-Identifier: MIT
// The ring over all ranks; circle.cpp says how. Those of a host stand side by side, hosts in the
// order of their numbers: so for H > 1 hosts exactly H edges of the circle are between hosts.
#include <algorithm>

#include "collectives/algorithms/circle.h"
#include "collectives/algorithms/exchange_plans.h"

namespace lockstep::collectives {
namespace {

Circle circle_of_all(const Request& request) {
  require_possible(request);
  std::vector<int> order = all_ranks(request);
  const auto host = [&](int rank) { return request.host[std::size_t(rank)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return host(a) < host(b); });
  std::vector<Party> parties;
  for (const int rank : order) parties.push_back({rank, {rank}});
  return {request, std::move(parties)};
}

}  // namespace

Plan ring_all_reduce(const Request& request) {
  return among_all(request, "ring", circle_of_all(request));
}

std::size_t ring_scratch(const Request& request) {
  return among_all_scratch(request, circle_of_all(request));
}

}  // namespace lockstep::collectives
