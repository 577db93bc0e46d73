// SPDX-License-Identifier: MIT
// Ring all-reduce over all ranks (circle.cpp). The ranks of a host are adjacent, in the request's
// order; hosts follow in the order of their numbers. So for H > 1 hosts exactly H edges of the ring
// are between hosts.
#include <algorithm>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/circle.h"
#include "collectives/algorithms/exchange_plans.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

Circle circle_of_all(const Request& request) {
  require_possible(request);
  std::vector<int> order = all_ranks(request);
  if (!request.order.empty()) {
    engine::require(
        std::is_permutation(order.begin(), order.end(), request.order.begin(), request.order.end()),
        "{}: the order of a ring must name each of its {} ranks once", request.name, order.size());
    order = request.order;
  }
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

std::string_view ring_same(const Request& request) {
  return request.host.size() == 1 ? "direct" : "";
}

}  // namespace lockstep::collectives
