// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/sequence_table.h"

#include <iterator>

#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

// Returns the count of missing numbers before the range that begins with `first`. `end`: the
// previous range's end, or 1 if it is the first range.
std::uint64_t gap(std::uint64_t end, std::uint64_t first) {
  const std::uint64_t life = first >> SequenceTable::kLifeBit;
  const bool same = life == end >> SequenceTable::kLifeBit;
  return first - (same ? end : (life << SequenceTable::kLifeBit) + 1);
}

}  // namespace

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
  given_up_ += gap(first->second, second->first);
  first->second = second->second;
  ends_.erase(second);
}

std::uint64_t SequenceTable::last() const {
  return ends_.empty() ? 0 : std::prev(ends_.end())->second - 1;
}

std::uint64_t SequenceTable::lost() const {
  std::uint64_t lost = given_up_, before = 1;
  for (const auto& [first, end] : ends_) {
    lost += gap(before, first);
    before = end;
  }
  return lost;
}

SequenceTable::Ranges SequenceTable::ranges() const {
  return {ends_.begin(), ends_.end()};
}

}  // namespace lockstep::strategies
