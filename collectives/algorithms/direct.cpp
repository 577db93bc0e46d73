// SPDX-License-Identifier: MIT
// Direct all-reduce: each rank of a host owns a slice of the subject, reads it from all ranks, and
// stores the result into all. Every rank runs one lane:
//   1. arrive: others may read the rank's numbers and overwrite its memory
//   2. await all
//   3. reduce the rank's slice: from all or from one, into all or into itself, with the epilogue
//   4. arrive: the rank has read and stored
//   5. await all: no other rank accesses the rank's memory anymore
// The ranks read n S and write n S elements, for n ranks and S elements: the lower bound. There are
// two waits.
#include <fmt/core.h>

#include <algorithm>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/steps.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// Makes a plan. `body(lane, me, slice)` appends step 3 of a rank whose slice is not empty.
template <class Body>
Plan direct(const Request& request, Body body) {
  Plan plan = empty_plan(request, "direct", 1);
  const std::string refusal = direct_refusal(request.host);
  engine::require(refusal.empty(), "{}: direct {}; ring crosses hosts", request.name, refusal);
  const int n = plan.ranks();
  for (int me = 0; me < n; ++me) {
    Lane& lane = plan.lanes[std::size_t(me)][0];
    if (n > 1) lane = {arrive(), await(all_ranks(request), 1)};
    const Range mine = slice(request.subject, (me + request.rotation) % n, n);
    if (!mine.empty()) body(lane, me, mine);
    if (n == 1) continue;
    lane.push_back(arrive());
    lane.push_back(await(all_ranks(request), 2));
  }
  return plan;
}

// Copies the sums of squares of the rank's blocks from its norms into those of all others.
void tell_norms(Lane& lane, const Request& request, int me, Range mine) {
  const std::size_t first = mine.begin / engine::kBlock;
  const std::size_t last = (mine.end + engine::kBlock - 1) / engine::kBlock;
  std::vector<int> others = all_ranks(request);
  std::erase(others, me);
  if (others.empty()) return;
  lane.push_back(
      reduce(last - first, {{me, Space::kNorms, first}}, everywhere(others, Space::kNorms, first)));
}

// Adds the slice of all ranks in the request's space into `to`.
void add_sum(Lane& lane, const Request& request, int me, Range mine, std::vector<Operand> to) {
  const std::vector<int> all = all_ranks(request);
  const Epilogue epilogue = request.squares ? Epilogue::kSquares
                            : request.mean  ? Epilogue::kScale
                                            : Epilogue::kNone;
  if (all.size() == 1 && epilogue != Epilogue::kSquares) return;
  Step step =
      reduce(mine.size(), everywhere(all, request.space, mine.begin), std::move(to), epilogue);
  if (request.mean) step.scale = 1.0 / double(all.size());
  lane.push_back(std::move(step));
  if (request.squares) tell_norms(lane, request, me, mine);
}

// Copies a slice from one rank into all others.
void hand_out(Lane& lane, const Request& request, int from, Range range) {
  engine::require(!request.mean && !request.squares && request.op == ReduceOp::kSum,
                  "{}: numbers are handed out as they are", request.name);
  std::vector<int> others = all_ranks(request);
  std::erase(others, from);
  if (others.empty()) return;
  lane.push_back(reduce(range.size(), {{from, request.space, range.begin}},
                        everywhere(others, request.space, range.begin)));
}

}  // namespace

std::string direct_refusal(const std::vector<int>& host) {
  const auto other = std::find_if(host.begin(), host.end(), [&](int h) { return h != host[0]; });
  if (other == host.end()) return {};
  return fmt::format(
      "needs all ranks on one host, since it reads their memory, but rank 0 is on host {} and rank "
      "{} on host {}",
      host[0], other - host.begin(), *other);
}

Plan direct_all_reduce(const Request& request) {
  const std::vector<int> all = all_ranks(request);
  return direct(request, [&](Lane& lane, int me, Range mine) {
    if (!request.update)
      return add_sum(lane, request, me, mine, everywhere(all, request.space, mine.begin));
    lane.push_back(reduce(mine.size(), everywhere(all, request.space, mine.begin),
                          everywhere(all, Space::kWeight, mine.begin), Epilogue::kUpdate));
  });
}

Plan direct_reduce_scatter(const Request& request) {
  return direct(request, [&](Lane& lane, int me, Range mine) {
    add_sum(lane, request, me, mine, {{me, request.space, mine.begin}});
  });
}

Plan direct_update_and_store(const Request& request) {
  Request plain = request;  // the sums' plan already copied the squares
  plain.squares = false, plain.update = true;
  return direct(plain, [&](Lane& lane, int me, Range mine) {
    lane.push_back(reduce(mine.size(), {{me, Space::kGradient, mine.begin}},
                          everywhere(all_ranks(plain), Space::kWeight, mine.begin),
                          Epilogue::kUpdate));
  });
}

Plan direct_all_gather(const Request& request) {
  return direct(request,
                [&](Lane& lane, int me, Range mine) { hand_out(lane, request, me, mine); });
}

Plan direct_broadcast(const Request& request) {
  engine::require(request.root >= 0 && request.root < int(request.host.size()),
                  "{}: rank {} of {} cannot hand anything out", request.name, request.root,
                  request.host.size());
  return direct(
      request, [&](Lane& lane, int, Range slice) { hand_out(lane, request, request.root, slice); });
}

}  // namespace lockstep::collectives
