// SPDX-License-Identifier: MIT
// Hierarchical all-reduce (hierarchical.cpp) with halving-doubling instead of the ring between the
// leaders of a slice. It sends as many bytes in a logarithmic number of rounds, for few bytes or
// many hosts. Leaders read the numbers of their host in the first round (doubling.cpp).
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/doubling.h"
#include "collectives/algorithms/exchange_plans.h"

namespace lockstep::collectives {
namespace {

MakeExchange doubling(const Request& request) {
  return [&request](std::vector<Party> leaders, Range slice) {
    return std::make_unique<Doubling>(request, std::move(leaders), slice);
  };
}

}  // namespace

Plan hierarchical_halving_all_reduce(const Request& request) {
  return among_leaders(request, "hierarchical_halving", kEveryRank, doubling(request));
}

std::size_t hierarchical_halving_scratch(const Request& request) {
  return among_leaders_scratch(request, kEveryRank, doubling(request));
}

std::string_view hierarchical_halving_same(const Request& request) {
  if (direct_refusal(request.host).empty()) return "direct";
  return ranks_of_hosts(request).most == 1 ? "halving_doubling" : "";
}

}  // namespace lockstep::collectives
