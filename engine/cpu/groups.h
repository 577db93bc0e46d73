// SPDX-License-Identifier: MIT
// What `combine` and `update` share. Their kernels take groups of numbers: as many as fill four of
// the widest vectors, so that as many loads are under way as the core can wait for, and so that
// there is one loop and nothing beside it. What is less than a group, before the first border of a
// cache line and at the end, goes through a group in local memory. Plain data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep::engine::cpu {

inline constexpr std::size_t kLine = 64, kGroupBytes = 4 * kLine;  // as the numbers are computed

struct alignas(kLine) LocalGroup {
  std::byte bytes[kGroupBytes];
};

struct Targets {
  std::span<std::byte* const> to;
  std::size_t first = 0;           // bytes in each before the elements that are stored
  const std::byte* own = nullptr;  // the one whose lines are in the caches, if any: its element
  bool stream = false;             // store past the caches, but for `own`
  std::byte* at(std::size_t t) const { return to[t] + first; }
};

// So many elements of `size` bytes before all targets but `own` reach the border of a cache line,
// which may be none; nothing where there are none, or where they reach it at different elements.
inline std::optional<std::size_t> elements_to_border(const Targets& targets, std::size_t size) {
  std::optional<std::size_t> found;
  for (std::size_t t = 0; t < targets.to.size(); ++t) {
    if (targets.at(t) == targets.own) continue;
    const std::size_t bytes = -reinterpret_cast<std::uintptr_t>(targets.at(t)) % kLine;
    if (bytes % size != 0 || (found && *found != bytes / size)) return std::nullopt;
    found = bytes / size;
  }
  return found;
}

}  // namespace lockstep::engine::cpu
