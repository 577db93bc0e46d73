// SPDX-License-Identifier: MIT
// Halving-doubling over all ranks in their order (doubling.cpp): a logarithmic number of rounds,
// and the balanced tree of direct across hosts. Ranks that share a host read each other's memory.
// If they are adjacent, the largest exchanges are theirs.
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/doubling.h"
#include "collectives/algorithms/exchange_plans.h"

namespace lockstep::collectives {
namespace {

Doubling among_ranks(const Request& request) {
  require_possible(request);
  std::vector<Party> parties;
  for (const int rank : all_ranks(request)) parties.push_back({rank, {rank}});
  return {request, std::move(parties), request.subject};
}

}  // namespace

Plan halving_doubling_all_reduce(const Request& request) {
  return among_all(request, "halving_doubling", among_ranks(request));
}

std::size_t halving_doubling_scratch(const Request& request) {
  return among_all_scratch(request, among_ranks(request));
}

std::string_view halving_doubling_same(const Request& request) {
  return request.host.size() == 1 ? "direct" : "";
}

}  // namespace lockstep::collectives
