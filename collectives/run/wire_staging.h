// SPDX-License-Identifier: MIT
// Memory for messages that do not travel from and to their operands. One kind is messages in
// another type than their plan's (Step::wire). The other is all messages of a rank on a device with
// its own memory, except for numbers that the host adds. A message has its place from the post to
// the end of the wait. Places are laid out once, from the plan: a lane has as many as it ever has
// such messages in flight, each for its largest. Owns its memory; one rank's executor uses it.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/plan/plan.h"
#include "engine/device/buffer.h"

namespace lockstep::collectives {

class WireStaging {
 public:
  WireStaging() = default;
  // Divides `memory`, which has bytes() and is zeroed. On a device it is shared with the host.
  WireStaging(const StepPlan& step, int rank, bool on_device, engine::Buffer memory);
  // Returns the bytes that a rank needs.
  static std::size_t bytes(const StepPlan& step, int rank, bool on_device);
  // Returns the place of a posting step, or null if its message travels from and to its operand.
  std::byte* at(int plan, int lane, std::size_t step) const;

 private:
  struct Layout {
    // Offsets of posts' places by plan, lane and step, or kNone.
    std::vector<std::vector<std::vector<std::size_t>>> places;
    std::size_t bytes = 0;
  };
  static constexpr std::size_t kNone = std::size_t(-1);
  static Layout lay_out(const StepPlan& step, int rank, bool on_device);

  Layout layout_;
  engine::Buffer memory_;
};

}  // namespace lockstep::collectives
