// SPDX-License-Identifier: MIT
// Halving-doubling over all ranks, in their order: a logarithm of rounds, and the balanced tree of
// direct across hosts. doubling.cpp says how. Ranks that share a host exchange by reading each
// other, and where they stand side by side the largest exchanges are theirs. The subject goes in
// segments, two or more in flight, which one lane after the other takes up.
#include <algorithm>

#include "collectives/algorithms/doubling.h"
#include "collectives/algorithms/leaders.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

bool whole(const Request& request, Range range) {
  return range.size() * engine::size_of(request.dtype) <= kDoublingBytes;
}

// Every rank is a party of its own.
Doubling among_all(const Request& request) {
  require_possible(request);
  std::vector<Party> parties;
  for (const int rank : all_ranks(request)) parties.push_back({rank, {rank}});
  return {request, parties, whole(request, request.subject)};
}

bool one_host(const Request& request) {
  const auto& host = request.host;
  return std::all_of(host.begin(), host.end(), [&](int h) { return h == host[0]; });
}

std::size_t scratch_of_lane(const Request& request, const Doubling& doubling,
                            const Segments& list) {
  if (one_host(request)) return 0;
  std::size_t most = 0;
  for (int i = 0; i < list.count; ++i) most = std::max(most, doubling.scratch(list[i]));
  return most;
}

}  // namespace

Plan halving_doubling_all_reduce(const Request& request) {
  engine::require(!request.squares,
                  "{}: halving_doubling leaves no squares; add local_squares after it",
                  request.name);
  const Doubling doubling = among_all(request);
  const Segments list = segments(request, request.subject, doubling.parts());
  Plan plan = empty_plan(request, "halving_doubling", list.lanes);
  if (request.subject.empty() || plan.ranks() == 1) return plan;
  const std::size_t scratch = scratch_of_lane(request, doubling, list);
  for (int rank = 0; rank < plan.ranks(); ++rank)
    for (int l = 0; l < list.lanes; ++l) {
      Lane& lane = plan.lanes[std::size_t(rank)][std::size_t(l)];
      Doubling::Place place{l, 0, request.scratch + std::size_t(l) * scratch};
      for (int i = l; i < list.count; i += list.lanes, ++place.walks)
        doubling.walk(lane, rank, list[i], place);
      doubling.end(lane, rank, place);
    }
  return plan;
}

std::size_t halving_doubling_scratch(const Request& request) {
  const Doubling doubling = among_all(request);
  const Segments list = segments(request, request.subject, doubling.parts());
  return std::size_t(list.lanes) * scratch_of_lane(request, doubling, list);
}

}  // namespace lockstep::collectives
