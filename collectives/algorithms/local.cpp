// SPDX-License-Identifier: MIT
// Local plans: every rank works on its own memory with sums that it already holds. A plan has one
// lane of one step, without arrivals or messages. Each rank passes over all S elements, so n ranks
// do n times the work of one.
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/steps.h"

namespace lockstep::collectives {
namespace {

// Makes a plan. `to`: store the result into the weights; else it is not stored.
Plan local(const Request& request, Epilogue epilogue, bool to) {
  Request plain = request;
  plain.squares = false;
  Plan plan = empty_plan(plain, "local", 1);
  const std::size_t begin = request.subject.begin;
  if (request.subject.empty()) return plan;
  for (int me = 0; me < plan.ranks(); ++me) {
    std::vector<Operand> target;
    if (to) target.push_back({me, Space::kWeight, begin});
    plan.lanes[std::size_t(me)][0].push_back(reduce(
        request.subject.size(), {{me, Space::kGradient, begin}}, std::move(target), epilogue));
  }
  return plan;
}

}  // namespace

Plan local_update(const Request& request) {
  return local(request, Epilogue::kUpdate, true);
}

Plan local_squares(const Request& request) {
  return local(request, Epilogue::kSquares, false);
}

}  // namespace lockstep::collectives
