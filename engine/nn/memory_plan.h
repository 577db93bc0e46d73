// SPDX-License-Identifier: MIT
// Assigns offsets to memory blocks that are needed only for a while: two blocks share bytes only if
// their lifetimes do not overlap. A pure function, called once per graph; about n^2 for n blocks.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::engine {

// Describes a block of memory, with the first and last moment of a step at which it is touched.
struct Lifetime {
  std::size_t bytes = 0;
  std::size_t first = 0, last = 0;
};

struct MemoryPlan {
  static constexpr std::size_t kAlignment = 64;
  std::vector<std::size_t> offsets;  // per block, multiples of kAlignment
  std::size_t bytes = 0;             // total size
};
MemoryPlan plan_memory(std::span<const Lifetime> blocks);

}  // namespace lockstep::engine
