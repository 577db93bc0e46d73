// SPDX-License-Identifier: MIT
#include "collectives/symbolic_memory.h"

#include <algorithm>

namespace lockstep::collectives {

bool Value::whole() const {
  return std::all_of(contributions.begin(), contributions.end(), [](int n) { return n == 1; });
}

std::vector<std::pair<std::size_t, std::size_t>> SymbolicMemory::pieces(
    const std::vector<Stretch>& stretches) const {
  if (stretches.empty() || stretches[0].bytes == 0) return {};
  const std::size_t bytes = stretches[0].bytes;
  std::set<std::size_t> cuts{0, bytes};
  for (const Stretch& s : stretches) {
    const auto space = spaces_.find({s.rank, s.space});
    if (space == spaces_.end()) continue;
    const Cells& cells = space->second;
    auto at = cells.upper_bound(s.begin);
    if (at != cells.begin()) --at;
    const auto cut = [&](std::size_t place) {
      if (place > s.begin && place < s.begin + bytes) cuts.insert(place - s.begin);
    };
    for (; at != cells.end() && at->first < s.begin + bytes; ++at)
      cut(at->first), cut(at->second.end);
  }
  std::vector<std::pair<std::size_t, std::size_t>> list;
  for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at)
    list.emplace_back(*at, *std::next(at));
  return list;
}

Cell& SymbolicMemory::cell(const Stretch& stretch, std::pair<std::size_t, std::size_t> piece) {
  const std::size_t begin = stretch.begin + piece.first, end = stretch.begin + piece.second;
  Cells& cells = spaces_[{stretch.rank, stretch.space}];
  auto at = cells.upper_bound(begin);
  if (at == cells.begin() || std::prev(at)->second.end <= begin)
    return cells.emplace(begin, Interval{end, {}}).first->second.cell;  // nobody was here
  --at;
  if (at->first < begin) {
    const Interval right = at->second;
    at->second.end = begin;
    at = cells.emplace(begin, right).first;
  }
  if (at->second.end > end) {
    cells.emplace(end, at->second);
    at->second.end = end;
  }
  return at->second.cell;
}

}  // namespace lockstep::collectives
