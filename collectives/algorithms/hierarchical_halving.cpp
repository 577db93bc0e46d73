// SPDX-License-Identifier: MIT
// Hierarchical as in hierarchical.cpp, with halving-doubling in place of the ring between the
// leaders of a slice: as many bytes on the wire in a logarithm of rounds, for few bytes or many
// hosts. doubling.cpp says how; leaders take the numbers of their host in the first round.
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
