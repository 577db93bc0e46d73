// SPDX-License-Identifier: MIT
#include "collectives/check/symbolic_memory.h"

#include <algorithm>
#include <span>

namespace lockstep::collectives {
namespace {

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x632be59bd9b4e019u);
  x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27, x *= 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::uint64_t tree(std::span<const std::uint64_t> sources) {
  if (sources.size() == 1) return sources[0];
  const std::size_t half = (sources.size() + 1) / 2;
  const std::uint64_t a = tree(sources.first(half)), b = tree(sources.subspan(half));
  return mixed(std::min(a, b), std::max(a, b));
}

}  // namespace

void Value::join(std::vector<std::uint64_t> sources) {
  narrow = narrow && sources.size() == 1;
  bits = tree(sources);
}

void Value::change(std::uint64_t what) {
  bits = mixed(bits, what);
  narrow = false;
}

void Value::round() {
  if (!narrow) change(0);
  narrow = true;
}

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
    return cells.emplace(begin, Interval{end, {}}).first->second.cell;  // not accessed before
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

Stretch stretch(const Operand& operand, std::size_t count, DType dtype) {
  const std::size_t width =
      engine::size_of(operand.space == Space::kNorms ? DType::kFloat64 : dtype);
  return {operand.rank, operand.space, operand.offset * width, count * width};
}

Stretch norms(int rank, Range range) {
  const std::size_t first = range.begin / engine::kBlock;
  const std::size_t last = (range.end + engine::kBlock - 1) / engine::kBlock;
  return stretch({rank, Space::kNorms, first}, last - first, DType::kFloat64);
}

}  // namespace lockstep::collectives
