// SPDX-License-Identifier: MIT
// Definitions shared by `combine` and `update`. Their kernels take groups of numbers that fill four
// of the widest vectors: this keeps as many loads in flight as the core supports and needs a single
// loop. The elements before the first cache-line border and after the last whole group go through a
// group in local memory. Plain data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep::engine::cpu {

// Bytes of a cache line and of a group. Groups count numbers in the type of computation.
inline constexpr std::size_t kLine = 64, kGroupBytes = 4 * kLine;

struct alignas(kLine) LocalGroup {
  std::byte bytes[kGroupBytes];
};

struct Targets {
  std::span<std::byte* const> to;
  std::size_t first = 0;           // bytes before the stored elements
  const std::byte* own = nullptr;  // first element of the cached target, if any
  bool stream = false;             // non-temporal stores, except for `own`
  std::byte* at(std::size_t t) const { return to[t] + first; }
};

// Returns how many elements of `size` bytes precede the next border of a cache line in all targets
// except `own`; possibly 0. Returns nothing if there are no such targets or they reach the border
// at different elements.
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
