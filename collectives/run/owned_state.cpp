// SPDX-License-Identifier: MIT
#include "collectives/run/owned_state.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::collectives {

std::size_t OwnedState::elements() const {
  std::size_t sum = 0;
  for (const Range range : ranges) sum += range.size();
  return sum;
}

std::size_t OwnedState::local(std::size_t offset) const {
  std::size_t before = 0;
  for (const Range range : ranges) {
    if (offset >= range.begin && offset < range.end) return before + offset - range.begin;
    before += range.size();
  }
  engine::fail(engine::Code::kInvalid, "no owned range holds element {}", offset);
}

std::size_t OwnedState::segment(std::size_t offset) const {
  const auto found = std::ranges::upper_bound(segments, offset, {}, &engine::UpdateSegment::end);
  engine::invariant(found != segments.end(), "an element behind the last segment");
  return std::size_t(found - segments.begin());
}

}  // namespace lockstep::collectives
