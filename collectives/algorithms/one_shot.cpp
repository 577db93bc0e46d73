// SPDX-License-Identifier: MIT
// One-shot all-reduce: for few bytes a second wait costs more than moving everything n times. Every
// rank runs one lane:
//   1. copy the rank's numbers into its scratch
//   2. arrive: others may read them there
//   3. await all
//   4. reduce everything into the rank: its numbers and the scratch of all others, in rank order
// There is one wait. The ranks read n (n + 1) S and write 2 n S, for n ranks and S elements.
//
// Reads need no acknowledgment, because executions alternate between two halves of the scratch.
// Another rank reads a rank's half of execution e in execution e alone. It arrives in execution
// e + 1 after that, since a rank begins an execution when the previous one has ended there. The
// owner awaits that arrival in execution e + 1, and overwrites the half in e + 2.
#include <fmt/core.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/steps.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// Largest sum in one shot, in bytes; larger ones use direct. So scratch stays small. For larger
// sums two waits are negligible beside moving everything n times.
constexpr std::size_t kMostOneShot = std::size_t(256) << 10;

bool in_one_shot(const Request& request) {
  return request.host.size() > 1 && !request.subject.empty() &&
         request.subject.size() * engine::size_of(request.dtype) <= kMostOneShot;
}

// Returns the elements of one half, in whole blocks: no two halves share a cache line.
std::size_t half(const Request& request) {
  return (request.subject.size() + engine::kBlock - 1) / engine::kBlock * engine::kBlock;
}

}  // namespace

Plan one_shot_all_reduce(const Request& request) {
  Plan plan = empty_plan(request, "one_shot", 1);
  const std::string refusal = direct_refusal(request.host);
  engine::require(refusal.empty(), "{}: one_shot {}; ring crosses hosts", request.name, refusal);
  engine::require(!request.squares, "{}: one_shot leaves no squares; add local_squares after it",
                  request.name);
  engine::require(!request.update, "{}: one_shot has no place for an update; direct has",
                  request.name);
  if (!in_one_shot(request)) {
    plan.lanes = direct_all_reduce(request).lanes;
    return plan;
  }
  plan.alternate = half(request);
  const std::vector<int> all = all_ranks(request);
  const std::size_t count = request.subject.size();
  for (const int me : all) {
    const Operand mine{me, request.space, request.subject.begin};
    std::vector<Operand> from = everywhere(all, Space::kScratch, request.scratch);
    Step sum = reduce(count, std::move(from), {mine});
    sum.from[std::size_t(me)] = mine;
    if (request.mean) {
      sum.epilogue = Epilogue::kScale;
      sum.scale = 1.0 / double(all.size());
    }
    plan.lanes[std::size_t(me)][0] = {
        reduce(count, {mine}, {{me, Space::kScratch, request.scratch}}), arrive(), await(all, 1),
        std::move(sum)};
  }
  return plan;
}

std::size_t one_shot_scratch(const Request& request) {
  return in_one_shot(request) ? 2 * half(request) : 0;
}

std::string_view one_shot_same(const Request& request) {
  return in_one_shot(request) ? "" : "direct";
}

}  // namespace lockstep::collectives
