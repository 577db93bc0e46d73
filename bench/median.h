// SPDX-License-Identifier: MIT
// The middle of some samples, which one that was disturbed does not move. Any thread.
#pragma once
#include <algorithm>
#include <vector>

namespace lockstep::bench {

// 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep::bench
