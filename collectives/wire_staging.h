// SPDX-License-Identifier: MIT
// Where messages lie that travel in another type than their plan's (Step::wire): from the post to
// the end of the wait. Laid out once, from the plan: a lane has as many places as it ever has such
// messages under way, each of its largest. Owns its memory; one rank's executor uses it.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/plan.h"
#include "engine/device/buffer.h"

namespace lockstep::collectives {

class WireStaging {
 public:
  WireStaging() = default;
  WireStaging(const StepPlan& step, int rank);
  // Of a rank, without taking it.
  static std::size_t bytes(const StepPlan& step, int rank);
  // Of a posting step that has a type of its own.
  std::byte* at(int plan, int lane, std::size_t step) const;

 private:
  struct Layout {
    // By plan, lane, step: the place of posts with a type of their own, in bytes.
    std::vector<std::vector<std::vector<std::size_t>>> places;
    std::size_t bytes = 0;
  };
  static Layout lay_out(const StepPlan& step, int rank);

  Layout layout_;
  engine::Buffer memory_;
};

}  // namespace lockstep::collectives
