// SPDX-License-Identifier: MIT
// Local: every rank works on its own memory with sums that it already holds. One lane of one step;
// no arrivals, no messages. Costs each rank a pass over all S elements, n times the work of one
// rank.
#include "collectives/algorithms/steps.h"

namespace lockstep::collectives {
namespace {

// `to`: whether the result goes into the weights, or nowhere.
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
