// SPDX-License-Identifier: MIT
#include "collectives/algorithms/vendor_sum.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::collectives {

bool is_vendor_sum(std::string_view name) {
  return std::ranges::find(kVendorSums, name) != kVendorSums.end();
}

Plan vendor_all_reduce(const Request& request, std::string_view name) {
  const bool plain = request.op == ReduceOp::kSum && !request.mean && !request.squares;
  engine::require(plain && !request.update && !request.wire,
                  "{}: {} adds, and can do nothing else in between", request.name, name);
  Plan plan;
  plan.name = request.name;
  plan.algorithm = name;
  plan.dtype = request.dtype;
  plan.space = request.space;
  plan.subject = request.subject;
  plan.host = request.host;
  for (int rank = 0; rank < int(request.host.size()); ++rank) {
    Step step{.action = Action::kVendor, .count = request.subject.size()};
    step.to = {{rank, request.space, request.subject.begin}};
    plan.lanes.push_back({{std::move(step)}});
  }
  return plan;
}

}  // namespace lockstep::collectives
