// SPDX-License-Identifier: MIT
#include "engine/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace lockstep::engine {
namespace random_test {

// The expected values are those that Random123 publishes for Philox4x32-10 (kat_vectors).
TEST(Random, GivesTheKnownAnswersOfPhilox) {
  using Four = std::array<std::uint32_t, 4>;
  EXPECT_EQ(random_bits(0, 0, 0), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(random_bits(~0ull, ~0ull, ~0ull),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(random_bits(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, CursorReadsTheCountersInOrder) {
  Random random(5, 7);
  for (std::uint64_t position = 0; position < 3; ++position) {
    for (std::uint32_t expected : random_bits(5, 7, position)) EXPECT_EQ(random.bits(), expected);
  }
}

TEST(Random, KeysDifferForNearSeedsAndNames) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (const char* name : {"", "a", "b", "ab", "ba", "conv1.weight", "conv2.weight"}) {
      keys.insert(stream_key(seed, name));
    }
  }
  EXPECT_EQ(keys.size(), 50u * 7u);
  // On average, half of the bits change if the seed changes by one.
  int changed = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    changed += __builtin_popcountll(stream_key(seed, "dense") ^ stream_key(seed + 1, "dense"));
  }
  EXPECT_NEAR(changed / 100.0, 32.0, 3.0);
}

// The keys never change: a checkpoint made elsewhere must find the same streams.
TEST(Random, KeyOfSeedAndNameStaysWhatItIs) {
  EXPECT_EQ(stream_key(0, ""), 0x5b21f68ffa77f14cull);
  EXPECT_EQ(stream_key(1, "dense.weight"), 0x06aa7db1628c84bfull);
}

TEST(Random, UniformNumbersAreInsideAndEven) {
  EXPECT_GT(uniform(0u), 0.0);
  EXPECT_LT(uniform(~0u), 1.0);
  Random random(stream_key(1, "uniform"));
  constexpr int kCount = 40000;
  std::array<int, 16> cells{};
  double sum = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = random.uniform(-2, 6);
    ASSERT_GT(u, -2.0);
    ASSERT_LT(u, 6.0);
    sum += u;
    ++cells[std::size_t((u + 2) * 2)];
  }
  EXPECT_NEAR(sum / kCount, 2.0, 0.05);
  for (int cell : cells) EXPECT_NEAR(cell, kCount / 16, 250);  // five standard deviations
}

TEST(Random, NormalNumbersHaveTheMomentsOfTheNormal) {
  Random random(stream_key(2, "normal"));
  constexpr int kCount = 40000;
  double sum = 0, squares = 0, fourths = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.03);
  EXPECT_NEAR(squares / kCount, 1.0, 0.04);
  EXPECT_NEAR(fourths / kCount, 3.0, 0.3);
}

TEST(Random, BelowReachesAllAndOnlyAllowedNumbers) {
  for (std::uint64_t bound : {1ull, 2ull, 3ull, 7ull, 10ull}) {
    Random random(3, bound);
    std::vector<int> seen(bound);
    for (int i = 0; i < 7000; ++i) {
      const std::uint64_t drawn = random.below(bound);
      ASSERT_LT(drawn, bound);
      ++seen[drawn];
    }
    for (int count : seen) EXPECT_NEAR(count, 7000.0 / double(bound), 250);
  }
  for (std::uint64_t bound : {0xffffffffull, 0x100000000ull, 0x180000000ull, ~0ull}) {
    Random random(4, bound);
    double mean = 0;
    for (int i = 0; i < 4000; ++i) {
      const std::uint64_t drawn = random.below(bound);
      ASSERT_LT(drawn, bound);
      mean += double(drawn) / double(bound) / 4000;
    }
    EXPECT_NEAR(mean, 0.5, 0.03);
  }
}

TEST(Permutation, HoldsEachNumberOnce) {
  for (std::uint64_t count : {0ull, 1ull, 2ull, 3ull, 17ull, 1000ull}) {
    auto order = permutation(count, 9, 0);
    ASSERT_EQ(order.size(), count);
    std::sort(order.begin(), order.end());
    for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(order[i], i);
  }
}

TEST(Permutation, IsAFunctionOfKeyAndIndex) {
  EXPECT_EQ(permutation(1000, 9, 4), permutation(1000, 9, 4));
  EXPECT_NE(permutation(1000, 9, 4), permutation(1000, 9, 5));
  EXPECT_NE(permutation(1000, 9, 4), permutation(1000, 8, 4));
}

TEST(Permutation, ReachesAllOrdersEquallyOften) {
  std::array<int, 27> seen{};
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
    const auto order = permutation(3, 11, epoch);
    ++seen[order[0] * 9 + order[1] * 3 + order[2]];
  }
  int orders = 0;
  for (int count : seen) {
    if (count == 0) continue;
    ++orders;
    EXPECT_NEAR(count, 1000, 150);
  }
  EXPECT_EQ(orders, 6);
}

}  // namespace random_test
}  // namespace lockstep::engine
