// SPDX-License-Identifier: MIT
#include "collectives/algorithms/leaders.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// Segments of a leader that are under way at once. One is added while others are on the wire, and
// one more waits to be sent, so that a wire is idle only where a whole round takes longer than
// sending the rest. More cost scratch, and fill no wire better.
constexpr int kInFlight = 4;

// Below this a second message costs more in overhead (a system call and a wake-up at both ends)
// than its sending can be hidden behind the first one's adding.
constexpr std::size_t kLeastMessage = std::size_t(16) << 10;

// Received numbers begin at a multiple of a cache line.
constexpr std::size_t kLine = 16;

Range slice_of(const Request& request, const Leaders& leaders, int index) {
  return slice(request.subject, index, leaders.slices);
}

std::size_t ceil_divide(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int Leaders::rank(int host, int slice) const {
  const auto& ranks = hosts[std::size_t(host)];
  const int n = int(ranks.size());
  return ranks[std::size_t(((slice - turn) % n + n) % n)];
}

Leaders leaders(const Request& request, int most) {
  require_possible(request);
  std::map<int, std::vector<int>> by_host;
  for (const int rank : all_ranks(request))
    by_host[request.host[std::size_t(rank)]].push_back(rank);
  Leaders result;
  result.turn = request.turn;
  result.slices = most;
  for (auto& [host, ranks] : by_host) {
    result.slices = std::min(result.slices, int(ranks.size()));
    result.hosts.push_back(std::move(ranks));
  }
  return result;
}

Segments segments(const Request& request, Range slice, int parts) {
  const std::size_t width = engine::size_of(request.dtype);
  const std::size_t message = slice.size() * width / std::size_t(parts);  // were it one segment
  std::size_t count = ceil_divide(message, std::max<std::size_t>(request.chunk_bytes, 1));
  if (message >= 2 * kLeastMessage) count = std::max<std::size_t>(count, 2);
  // Parts of less than a block are empty.
  const std::size_t blocks = ceil_divide(slice.size(), engine::kBlock);
  Segments result{slice};
  result.count = int(std::clamp<std::size_t>(count, 1, std::max<std::size_t>(blocks, 1)));
  result.lanes = std::min(result.count, kInFlight);
  return result;
}

int most_lanes(const Request& request, const Leaders& leaders, int parts) {
  int lanes = 1;
  for (int s = 0; s < leaders.slices; ++s)
    lanes = std::max(lanes, segments(request, slice_of(request, leaders, s), parts).lanes);
  return lanes;
}

std::size_t lane_scratch(const Request& request, const Leaders& leaders, int parts,
                         const std::function<std::size_t(Range)>& of_segment) {
  std::size_t most = 0;
  for (int s = 0; s < leaders.slices; ++s) {
    const Segments list = segments(request, slice_of(request, leaders, s), parts);
    for (int i = 0; i < list.count; ++i) most = std::max(most, of_segment(list[i]));
  }
  return ceil_divide(most, kLine) * kLine;
}

// A rank's lane 0 begins with its arrival and ends with its waiting for the leaders; a leader's
// lanes have the walks in between. What a leader writes into others is seen by them when its lane
// has arrived, after its last walk: in lane 0 that is its second arrival, in the others the first.
// A host of one rank has nobody to meet.
Plan lead(const Request& request, std::string algorithm, const Leaders& leaders, int parts,
          std::size_t lane_scratch, const Walk& walk) {
  engine::require(!request.squares, "{}: {} leaves no squares; add local_squares after it",
                  request.name, algorithm);
  const int lanes = most_lanes(request, leaders, parts);
  Plan plan = empty_plan(request, std::move(algorithm), lanes);
  for (int host = 0; host < int(leaders.hosts.size()); ++host) {
    const std::vector<int>& group = leaders.hosts[std::size_t(host)];
    const bool alone = group.size() == 1;
    std::vector<std::vector<int>> at_work{std::size_t(lanes)};  // leaders, by lane
    for (const int rank : group)
      if (!alone) plan.lanes[std::size_t(rank)][0].push_back(arrive());
    for (int s = 0; s < leaders.slices; ++s) {
      const Segments list = segments(request, slice_of(request, leaders, s), parts);
      if (list.slice.empty()) continue;
      const int me = leaders.rank(host, s);
      for (int l = 0; l < list.lanes; ++l) {
        Lane& lane = plan.lanes[std::size_t(me)][std::size_t(l)];
        if (!alone) lane.push_back(await(group, 1));
        for (int i = l; i < list.count; i += list.lanes)
          walk(lane, s, host, list[i], request.scratch + std::size_t(l) * lane_scratch);
        if (!alone) lane.push_back(arrive());
        at_work[std::size_t(l)].push_back(me);
      }
    }
    for (const int rank : group)
      for (int l = 0; l < lanes; ++l)
        if (!alone && !at_work[std::size_t(l)].empty())
          plan.lanes[std::size_t(rank)][0].push_back(
              await(at_work[std::size_t(l)], l == 0 ? 2 : 1, l));
  }
  return plan;
}

}  // namespace lockstep::collectives
