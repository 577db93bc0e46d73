// SPDX-License-Identifier: MIT
// The middle of some samples, which one that was disturbed does not move. Pure; any thread.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::engine {

// Of an even number of them the upper one of the middle; 0 of none.
template <class T>
T median(std::vector<T> values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep::engine
