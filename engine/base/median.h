// SPDX-License-Identifier: MIT
// The median of samples, which a few outliers hardly move. Pure; thread-safe.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::engine {

// Returns the median: the upper middle value for an even count, and 0 for no values.
template <class T>
T median(std::vector<T> values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep::engine
