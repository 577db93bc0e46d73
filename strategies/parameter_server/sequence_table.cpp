// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/sequence_table.h"

#include <iterator>

#include "engine/base/error.h"

namespace lockstep::strategies {

SequenceTable::SequenceTable(const Ranges& ranges) {
  std::uint64_t before = 0;
  for (const auto& [first, end] : ranges) {
    if (first <= before || end <= first) {
      engine::fail(engine::Code::kCorrupt, "pushes {} to {} behind {} make no table of pushes",
                   first, end, before);
    }
    ends_.emplace_hint(ends_.end(), first, end);
    before = end;
  }
}

bool SequenceTable::had(std::uint64_t number) const {
  const auto next = ends_.upper_bound(number);
  return next != ends_.begin() && number < std::prev(next)->second;
}

void SequenceTable::add(std::uint64_t number) {
  const auto next = ends_.upper_bound(number);
  const bool before = next != ends_.begin() && std::prev(next)->second == number;
  const bool behind = next != ends_.end() && next->first == number + 1;
  if (before && behind) {
    std::prev(next)->second = next->second;
    ends_.erase(next);
  } else if (before) {
    ++std::prev(next)->second;
  } else {
    ends_.emplace_hint(next, number, behind ? next->second : number + 1);
    if (behind) ends_.erase(next);
  }
  if (ends_.size() <= kMostGaps) return;
  const auto first = ends_.begin(), second = std::next(first);
  given_up_ += second->first - first->second;
  first->second = second->second;
  ends_.erase(second);
}

std::uint64_t SequenceTable::last() const {
  return ends_.empty() ? 0 : std::prev(ends_.end())->second - 1;
}

std::uint64_t SequenceTable::lost() const {
  std::uint64_t had = 0;
  for (const auto& [first, end] : ends_) had += end - first;
  return last() - had + given_up_;
}

SequenceTable::Ranges SequenceTable::ranges() const {
  return {ends_.begin(), ends_.end()};
}

}  // namespace lockstep::strategies
