// SPDX-License-Identifier: MIT
// Where messages lie that do not travel from and to their operands: those in another type than
// their plan's (Step::wire), and all of a rank on a device with memory of its own, but for numbers
// that the host adds. From the post to the end of the wait. Laid out once, from the plan: a lane
// has as many places as it ever has such messages under way, each of its largest. Owns its memory;
// one rank's executor uses it.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/plan/plan.h"
#include "engine/device/buffer.h"

namespace lockstep::collectives {

class WireStaging {
 public:
  WireStaging() = default;
  // `memory`: bytes(), zeroed; of such a device, memory that it shares with the host.
  WireStaging(const StepPlan& step, int rank, bool on_device, engine::Buffer memory);
  // Of a rank, without taking it.
  static std::size_t bytes(const StepPlan& step, int rank, bool on_device);
  // Of a posting step; null where its message travels from and to its operand.
  std::byte* at(int plan, int lane, std::size_t step) const;

 private:
  struct Layout {
    // By plan, lane, step: where a post's place begins, or kNone.
    std::vector<std::vector<std::vector<std::size_t>>> places;
    std::size_t bytes = 0;
  };
  static constexpr std::size_t kNone = std::size_t(-1);
  static Layout lay_out(const StepPlan& step, int rank, bool on_device);

  Layout layout_;
  engine::Buffer memory_;
};

}  // namespace lockstep::collectives
