// SPDX-License-Identifier: MIT
// Hierarchical in two dimensions: inside a host every rank leads a slice, which it reads from all
// ranks and stores into all, as direct does; between hosts the leaders of each slice form a ring,
// all slices at once. So every rank works, and the wire carries 2 (H - 1) / H S a host, the least
// there can be. circle.cpp says how reading, sending and storing become one. On one host this is
// direct.
#include <limits>

#include "collectives/algorithms/circle.h"
#include "collectives/algorithms/exchange_plans.h"

namespace lockstep::collectives {
namespace {

constexpr int kAllRanks = std::numeric_limits<int>::max();

MakeExchange circle(const Request& request) {
  return [&request](std::vector<Party> leaders, Range) {
    return std::make_unique<Circle>(request, std::move(leaders));
  };
}

}  // namespace

Plan hierarchical_all_reduce(const Request& request) {
  return among_leaders(request, "hierarchical", kAllRanks, circle(request));
}

std::size_t hierarchical_scratch(const Request& request) {
  return among_leaders_scratch(request, kAllRanks, circle(request));
}

}  // namespace lockstep::collectives
