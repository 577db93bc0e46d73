// SPDX-License-Identifier: MIT
// The median of samples: a few disturbed ones hardly move it. Pure; any thread.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::engine {

// Returns the upper one of the two middle values if their number is even, and 0 if there is none.
template <class T>
T median(std::vector<T> values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep::engine
