// SPDX-License-Identifier: MIT
#include "engine/nn/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/random.h"

namespace lockstep::engine {
namespace memory_plan_test {

TEST(MemoryPlan, BlocksThatLiveAtOneMomentShareNoByteAndAllAreAligned) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<Lifetime> blocks(random.below(40));
    for (Lifetime& block : blocks) {
      block.bytes = random.below(5) == 0 ? random.below(2) : random.below(1000);
      block.first = random.below(30);
      block.last = block.first + random.below(12);
    }
    const MemoryPlan plan = plan_memory(blocks);
    ASSERT_EQ(plan.offsets.size(), blocks.size());
    std::size_t together = 0;
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      if (blocks[a].bytes == 0) continue;
      EXPECT_EQ(plan.offsets[a] % MemoryPlan::kAlignment, 0u);
      EXPECT_LE(plan.offsets[a] + blocks[a].bytes, plan.bytes);
      together += (blocks[a].bytes + 63) / 64 * 64;
      for (std::size_t b = 0; b < a; ++b) {
        if (blocks[b].bytes == 0) continue;
        bool meet = false;
        for (std::size_t moment = 0; moment < 50; ++moment) {
          meet |= blocks[a].first <= moment && moment <= blocks[a].last &&
                  blocks[b].first <= moment && moment <= blocks[b].last;
        }
        if (!meet) continue;
        EXPECT_TRUE(plan.offsets[a] + blocks[a].bytes <= plan.offsets[b] ||
                    plan.offsets[b] + blocks[b].bytes <= plan.offsets[a])
            << "seed " << seed << ", blocks " << a << " and " << b;
      }
    }
    EXPECT_LE(plan.bytes, together);
  }
}

TEST(MemoryPlan, BlocksThatNeverMeetShareTheirBytes) {
  const std::vector<Lifetime> chain{{640, 0, 1}, {640, 2, 3}, {64, 4, 4}, {640, 5, 9}};
  EXPECT_EQ(plan_memory(chain).bytes, 640u);
}

TEST(MemoryPlan, TouchingAtOneMomentIsMeeting) {
  const std::vector<Lifetime> pair{{64, 0, 1}, {64, 1, 2}};
  EXPECT_EQ(plan_memory(pair).bytes, 128u);
}

TEST(MemoryPlan, AGapThatFitsIsUsed) {
  // The two large blocks leave a gap below the second one after the first has ended.
  const std::vector<Lifetime> blocks{{256, 0, 1}, {192, 0, 3}, {128, 2, 3}, {128, 3, 3}};
  EXPECT_EQ(plan_memory(blocks).bytes, 256u + 192u);
}

TEST(MemoryPlan, NothingTakesNothing) {
  EXPECT_EQ(plan_memory({}).bytes, 0u);
  EXPECT_EQ(plan_memory(std::vector<Lifetime>{{0, 0, 5}}).bytes, 0u);
}

}  // namespace memory_plan_test
}  // namespace lockstep::engine
