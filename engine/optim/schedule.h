// SPDX-License-Identifier: MIT
// The learning rate as a pure function of the step: the same on all ranks, nothing to save. A
// value.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::engine::optim {

struct Schedule {
  enum class Kind : std::uint8_t { kConstant, kCosine };
  Kind kind = Kind::kCosine;  // from the rate down to last * rate
  // The number of steps of linear growth from rate / warm_up to rate.
  std::int64_t warm_up = 0;
  double last = 0;  // kCosine: the final fraction of the rate
  // Returns the rate at `step` of `steps`, both counted from the beginning of the run. steps >= 1.
  double rate(double base, std::int64_t step, std::int64_t steps) const;
  std::string describe() const;  // "cosine to 0, 100 steps of warm-up"
};
// Parses "constant", "cosine", "constant:warmup=100" or "cosine:warmup=100,last=0.1". Throws
// Error(kInvalid).
Schedule schedule(std::string_view text);

}  // namespace lockstep::engine::optim
