// SPDX-License-Identifier: MIT
// The deadline of a replica's waits, learned from its steps: 20 times the median of the last nine.
// A model whose step takes a minute is slow, not stuck. Not thread-safe.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

#include "engine/base/error.h"

namespace lockstep::strategies {

class StepDeadline {
 public:
  // Records that a step was reported. Returns whether `at_least` has a new value.
  bool reported(engine::Clock::time_point now);
  // Returns the learned deadline, or `least` if that is longer.
  std::chrono::milliseconds at_least(std::chrono::milliseconds least) const;

 private:
  static constexpr std::size_t kSteps = 9;
  std::optional<engine::Clock::time_point> last_;
  std::array<double, kSteps> seconds_{};
  std::size_t steps_ = 0;
  std::chrono::milliseconds deadline_{0};
};

}  // namespace lockstep::strategies
