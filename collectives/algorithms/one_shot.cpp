// SPDX-License-Identifier: MIT
// One shot: of few bytes a second wait costs more than moving everything n times. Every rank runs
// one lane:
//   1. copy my numbers into my scratch
//   2. arrive: they can be read there
//   3. await all
//   4. reduce everything into me: my numbers, and the scratch of all others, in rank order
// One wait. n (n + 1) S are read and 2 n S written, for n ranks and S elements.
//
// Nobody says that he has read. Instead executions take turns with two halves of the scratch, and
// that is enough: my half of execution e is read by another rank in execution e alone. He arrives
// in execution e + 1 when he has done so, since a rank begins an execution when the one before has
// ended there. I await that arrival in execution e + 1, and write the half again in e + 2.
#include <fmt/core.h>

#include "collectives/algorithms/steps.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// More than this is direct, so that scratch stays small: two waits are nothing there beside moving
// everything n times.
constexpr std::size_t kMostOneShot = std::size_t(256) << 10;

bool in_one_shot(const Request& request) {
  return request.host.size() > 1 && !request.subject.empty() &&
         request.subject.size() * engine::size_of(request.dtype) <= kMostOneShot;
}

// Elements of one half: blocks, so that no two halves share a cache line.
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
