// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/range_values.h"

#include <algorithm>
#include <iterator>

namespace lockstep::strategies {

RangeValues::RangeValues(std::size_t size, std::int64_t value) : size_(size) {
  if (size > 0) begins_[0] = value;
}

std::vector<RangeValues::Run> RangeValues::runs(engine::Range within) const {
  std::vector<Run> result;
  if (within.empty()) return result;
  for (auto run = std::prev(begins_.upper_bound(within.begin));
       run != begins_.end() && run->first < within.end; ++run) {
    const auto next = std::next(run);
    const std::size_t end = next == begins_.end() ? size_ : next->first;
    result.push_back(
        {{std::max(run->first, within.begin), std::min(end, within.end)}, run->second});
  }
  return result;
}

void RangeValues::set(engine::Range range, std::int64_t value) {
  if (range.empty()) return;
  split(range.begin);
  split(range.end);
  begins_.erase(begins_.lower_bound(range.begin), begins_.lower_bound(range.end));
  begins_[range.begin] = value;
  join(range);
}

void RangeValues::add(engine::Range range, std::int64_t value) {
  if (range.empty()) return;
  split(range.begin);
  split(range.end);
  for (auto run = begins_.find(range.begin); run != begins_.end() && run->first < range.end; ++run)
    run->second += value;
  join(range);
}

bool RangeValues::all(std::int64_t value) const {
  return std::all_of(begins_.begin(), begins_.end(),
                     [&](const auto& run) { return run.second == value; });
}

// Makes a run begin at `at`.
void RangeValues::split(std::size_t at) {
  if (at >= size_) return;
  const auto run = std::prev(begins_.upper_bound(at));
  if (run->first != at) begins_.emplace_hint(std::next(run), at, run->second);
}

// Merges neighboring runs of equal value at both ends of the range.
void RangeValues::join(engine::Range around) {
  for (const std::size_t at : {around.begin, around.end}) {
    const auto run = begins_.find(at);
    if (run == begins_.end() || run == begins_.begin()) continue;
    if (std::prev(run)->second == run->second) begins_.erase(run);
  }
}

}  // namespace lockstep::strategies
