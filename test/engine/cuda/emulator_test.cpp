// SPDX-License-Identifier: MIT
#include "test/engine/cuda/emulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <grid.cuh>
#include <numbers.cuh>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace lockstep::engine::cuda {
namespace emulator_test {

TEST(Emulator, RunsEachThreadOfEachBlockOnce) {
  std::vector<int> runs(3 * 2 * 64);
  emulate({3, 2, 64}, [&] {
    EXPECT_EQ(blocks(), 3u);
    EXPECT_EQ(block_rows(), 2u);
    EXPECT_EQ(threads(), 64u);
    ++runs[(block_row() * blocks() + block()) * threads() + thread()];
  });
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

TEST(Emulator, RunsNothingWithoutBlocks) {
  emulate({0, 1, 32}, [] { FAIL(); });
}

TEST(Emulator, ThreadsSeeWhatOthersSharedBeforeABarrier) {
  std::vector<unsigned> sums(5);
  emulate({5, 1, 256}, [&] {
    unsigned* const values = shared<unsigned, 256>();
    values[thread()] = thread() + block();
    for (unsigned half = 128; half > 0; half /= 2) {
      barrier();
      if (thread() < half) values[thread()] += values[thread() + half];
    }
    if (thread() == 0) sums[block()] = values[0];
  });
  for (unsigned b = 0; b < 5; ++b) EXPECT_EQ(sums[b], 255 * 128 + 256 * b);
}

// Returns the resident memory of this process in bytes.
std::size_t resident() {
  constexpr std::size_t kPage = 4096;
  std::size_t all = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * kPage;
}

// Jobs start dozens of threads, each with its own fibers; a sanitizer needs 100 MiB for those of
// one thread.
TEST(Emulator, AThreadThatEndsLeavesNothingBehind) {
  const auto emulate_elsewhere = [] {
    std::jthread([] { emulate({1, 1, 256}, [] { barrier(); }); });
  };
  emulate_elsewhere();
  const std::size_t before = resident();
  for (int i = 0; i < 60; ++i) emulate_elsewhere();
  EXPECT_LT(resident(), before + (std::size_t(200) << 20));
}

// Without the barrier, a thread would have to find the values of all others already.
TEST(Emulator, AMissingBarrierShows) {
  int wrong = 0;
  emulate({1, 1, 64}, [&] {
    int* const values = shared<int, 64>();
    values[thread()] = 1;
    if (std::accumulate(values, values + 64, 0) != 64) ++wrong;
  });
  EXPECT_GT(wrong, 0);
}

// Without it, a warp that is one round ahead would overwrite values that others still read.
TEST(Emulator, AMissingBarrierBetweenRoundsShows) {
  int wrong = 0;
  emulate({20, 1, 64}, [&] {
    unsigned* const values = shared<unsigned, 2>();
    for (unsigned round = 0; round < 3; ++round) {
      const unsigned value = shuffle_xor(round, 1);
      if (thread() % 32 == 0) values[thread() / 32] = value;
      barrier();
      if (values[0] + values[1] != 2 * round) ++wrong;
    }
  });
  EXPECT_GT(wrong, 0);
}

TEST(Emulator, OrdersDifferFromBlockToBlock) {
  std::set<std::vector<unsigned>> orders;
  std::vector<std::vector<unsigned>> order(10);
  emulate({10, 1, 32}, [&] { order[block()].push_back(thread()); });
  for (const auto& one : order) orders.insert(one);
  EXPECT_EQ(orders.size(), 10u);
}

TEST(Emulator, ShufflesGiveTheValuesOfOtherLanes) {
  emulate({2, 1, 96}, [] {
    const unsigned lane = thread() % 32, first = thread() - lane;
    EXPECT_EQ(shuffle_down(thread(), 3), lane + 3 < 32 ? thread() + 3 : thread());
    EXPECT_EQ(shuffle_xor(double(thread()), 5), double(first + (lane ^ 5)));
    EXPECT_EQ(shuffle_down(std::int64_t(-1) - thread(), 0), std::int64_t(-1) - thread());
  });
}

// Warps may differ in their number of shuffles. Lanes pass through a sequence of them in any order.
TEST(Emulator, WarpsShuffleEachForThemselves) {
  std::vector<unsigned> sums(4);
  emulate({1, 1, 128}, [&] {
    const unsigned warp = thread() / 32;
    unsigned sum = 1;
    for (unsigned again = 0; again <= warp; ++again) {
      for (unsigned mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    }
    sums[warp] = sum;
  });
  EXPECT_EQ(sums, (std::vector<unsigned>{32, 32 * 32, 32 * 32 * 32, 32 * 32 * 32 * 32}));
}

TEST(Emulator, SharedArraysAreApartAndHoldNoNumbersInEachBlock) {
  emulate({4, 1, 32}, [] {
    float* const a = shared<float, 32>();
    float* const b = shared<float, 32, 1>();
    double* const c = shared<double, 32>();
    EXPECT_TRUE(std::isnan(a[thread()]) && std::isnan(b[thread()]) && std::isnan(c[thread()]));
    a[thread()] = 1, b[thread()] = 2, c[thread()] = 3;
    barrier();
    EXPECT_EQ(a[31 - thread()] + 10 * b[31 - thread()] + 100 * float(c[31 - thread()]), 321);
  });
}

TEST(Emulator, AtomicsCountAndFindTheLeast) {
  std::uint64_t sum = 0, least = ~std::uint64_t(0);
  emulate({3, 1, 64}, [&] {
    atomic_add(&sum, thread());
    atomic_min(&least, 7 + thread());
  });
  EXPECT_EQ(sum, 3u * 63 * 32);
  EXPECT_EQ(least, 7u);
}

TEST(Emulator, EmulatesInSeveralThreadsAtATime) {
  std::vector<unsigned> sums(4);
  std::vector<std::thread> hosts;
  for (unsigned& sum : sums) {
    hosts.emplace_back([&sum] {
      emulate({8, 1, 64}, [&sum] {
        unsigned* const values = shared<unsigned, 64>();
        values[thread()] = 1;
        barrier();
        if (thread() == 0) sum += std::accumulate(values, values + 64, 0u);
      });
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(sums, std::vector<unsigned>(4, 512));
}

TEST(EmulatorDeathTest, StopsWhereAThreadMissesABarrier) {
  EXPECT_DEATH(emulate({2, 1, 64},
                       [] {
                         if (thread() != 40) barrier();
                       }),
               "63 threads wait at a barrier, 1 have left");
}

TEST(EmulatorDeathTest, StopsWhereALaneMissesAShuffle) {
  EXPECT_DEATH(emulate({1, 1, 64},
                       [] {
                         if (thread() != 40) shuffle_xor(1, 1);
                       }),
               "31 lanes of warp 1 wait at a shuffle that the others miss, such as lane 8");
}

TEST(EmulatorDeathTest, StopsWhereSomeLanesWaitAtABarrierOthersAtAShuffle) {
  EXPECT_DEATH(emulate({1, 1, 32},
                       [] {
                         if (thread() < 3) barrier();
                         shuffle_xor(1, 1);
                       }),
               "29 lanes of warp 0 wait at a shuffle");
}

TEST(EmulatorDeathTest, StopsWhereLanesShuffleInDifferentWays) {
  EXPECT_DEATH(emulate({1, 1, 32}, [] { shuffle_down(1, thread() % 2); }), "in different ways");
}

TEST(EmulatorDeathTest, StopsWhereABlockSharesTooMuch) {
  EXPECT_DEATH(emulate({1, 1, 32},
                       [] {
                         shared<double, 6144>();
                         shared<float, 1>();
                       }),
               "shares 49156 bytes; a GPU has 49152");
}

TEST(EmulatorDeathTest, StopsAtBlocksThatAreNotWholeWarps) {
  EXPECT_DEATH(emulate({1, 1, 33}, [] {}), "whole warps");
}

TEST(Numbers, AreRoundedAsTheEngineRounds) {
  EXPECT_EQ(narrow<BFloat16>(1.00390625f).bits, 0x3f80);  // half way: rounds to even
  EXPECT_EQ(wide(narrow<Half>(65520.0f)), INFINITY);
  EXPECT_TRUE(std::isnan(wide(narrow<BFloat16>(NAN))));
  EXPECT_EQ(narrow<float>(wide(0.1f)), 0.1f);
}

}  // namespace emulator_test
}  // namespace lockstep::engine::cuda
