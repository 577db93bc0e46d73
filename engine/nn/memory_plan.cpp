// SPDX-License-Identifier: MIT
#include "engine/nn/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::engine {

// Places blocks from the largest to the smallest. A block goes to the lowest offset at which it
// overlaps none of the placed blocks with overlapping lifetimes: the first gap that is large
// enough.
MemoryPlan plan_memory(std::span<const Lifetime> blocks) {
  const auto rounded = [](std::size_t bytes) {
    return (bytes + MemoryPlan::kAlignment - 1) / MemoryPlan::kAlignment * MemoryPlan::kAlignment;
  };
  MemoryPlan plan;
  plan.offsets.assign(blocks.size(), 0);
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<std::size_t> placed;
  for (std::size_t block : order) {
    const Lifetime& mine = blocks[block];
    const std::size_t bytes = rounded(mine.bytes);
    if (bytes == 0) continue;
    std::vector<std::pair<std::size_t, std::size_t>> taken;  // offset, end
    for (std::size_t other : placed) {
      const Lifetime& its = blocks[other];
      if (mine.first <= its.last && its.first <= mine.last) {
        taken.emplace_back(plan.offsets[other], plan.offsets[other] + rounded(its.bytes));
      }
    }
    std::sort(taken.begin(), taken.end());
    std::size_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + bytes <= begin) break;
      offset = std::max(offset, end);
    }
    plan.offsets[block] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    placed.push_back(block);
  }
  return plan;
}

}  // namespace lockstep::engine
