// SPDX-License-Identifier: MIT
#include "engine/report/profile.h"

#include <algorithm>

namespace lockstep::engine {

Profile::Profile(std::int64_t steps) : steps_(steps) {
  require(steps >= 1, "a profile needs at least one step, not {}", steps);
}

void Profile::choose(std::int64_t first, std::int64_t end) {
  from_ = first + std::clamp<std::int64_t>(end - first - steps_, 0, kLeftOut);
}

Timeline& Profile::timeline(int rank) {
  std::scoped_lock lock(mutex_);
  auto& timeline = timelines_[rank];
  if (!timeline) timeline = std::make_unique<Timeline>(rank);
  return *timeline;
}

}  // namespace lockstep::engine
