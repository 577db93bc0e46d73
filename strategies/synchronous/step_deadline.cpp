// SPDX-License-Identifier: MIT
#include "strategies/synchronous/step_deadline.h"

#include <algorithm>
#include <utility>

namespace lockstep::strategies {

bool StepDeadline::reported(engine::Clock::time_point now) {
  const auto last = std::exchange(last_, now);
  if (!last) return false;
  seconds_[steps_++ % kSteps] = std::chrono::duration<double>(now - *last).count();
  if (steps_ % kSteps != 0) return false;
  auto sorted = seconds_;
  std::nth_element(sorted.begin(), sorted.begin() + kSteps / 2, sorted.end());
  deadline_ = std::chrono::milliseconds(std::int64_t(20e3 * sorted[kSteps / 2]));
  return true;
}

std::chrono::milliseconds StepDeadline::at_least(std::chrono::milliseconds least) const {
  return std::max(least, deadline_);
}

}  // namespace lockstep::strategies
