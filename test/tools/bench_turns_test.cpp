// SPDX-License-Identifier: MIT
// Tests the timing of `lockstep bench`. A wrong element of a result is detected and reported. A
// round takes as long as its slowest rank, and begins when all ranks have written their input.
// Ranks are threads with invented work.
#include "tools/bench/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "collectives/job/host_memory.h"
#include "engine/cpu/cpu_device.h"
#include "engine/device/buffer.h"
#include "tools/bench/verdict.h"

namespace lockstep::test {
namespace bench_turns_test {

using collectives::HostMemory;
using engine::Buffer;
using testing::ElementsAre;
using testing::IsEmpty;
using tools::bench::Check;
using tools::bench::Collective;
using tools::bench::Setting;
using tools::bench::Variant;
using tools::bench::Verdict;
using tools::bench::Wrong;

constexpr std::chrono::seconds kDeadline{60};
constexpr std::size_t kCount = 1000;

float* numbers(const HostMemory& memory, int rank) {
  return reinterpret_cast<float*>(memory.block(rank));
}

// Runs two ranks and holds rank 0's results. Both ranks map the memory of each, as in a job.
struct Pair {
  Wrong wrong = {};
  std::vector<Variant> variants = {};

  // `variants_of` returns the variants that a rank times in rounds.
  void time(Setting setting, std::size_t count,
            const std::function<std::vector<Variant>(int, const HostMemory&)>& variants_of) {
    setting.task.host = {0, 0};
    const auto views = collectives::in_memory_bootstrap({0, 0}, kDeadline);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        const auto ops = engine::cpu_device()->ops(engine::DType::kFloat32, {.threads = 1});
        collectives::Job job(collectives::rank_of_each_process(*views[std::size_t(rank)]),
                             {.deadline = kDeadline});
        const tools::bench::Rank me{job, *ops};
        const std::size_t pages = (count * sizeof(float) + 4095) / 4096;
        const HostMemory memory(job.ranks(), pages * 4096, 4096, "a test: ");
        tools::bench::Meeting meeting(me);
        std::vector<Variant> mine = variants_of(rank, memory);
        const Wrong found = time_in_turns(me, meeting, setting, count, mine);
        if (rank == 0) wrong = found, variants = mine;
      });
  }
};

Setting broadcast() {
  Setting setting;
  setting.task.collective = Collective::kBroadcast;
  setting.iterations = 8;
  setting.warmup = 0;
  return setting;
}

// Returns a manual broadcast; `spoil` changes rank 1's result.
Variant handed_out(int rank, const HostMemory& memory, std::size_t count,
                   const std::function<void(float*)>& spoil = {}) {
  std::byte* const data = memory.block(rank);
  return {data, data, true, [&memory, rank, count, spoil] {
            if (rank == 0) return;
            std::memcpy(memory.block(1), memory.block(0), count * sizeof(float));
            if (spoil) spoil(numbers(memory, 1));
          }};
}

TEST(BenchTurns, FindAWrongElementOfAnyVariant) {
  Pair pair;
  const auto variants = [&](int rank, const HostMemory& memory) {
    return std::vector<Variant>{
        handed_out(rank, memory, kCount),
        handed_out(rank, memory, kCount,
                   [](float* numbers) { numbers[0] += 1, numbers[999] = -1; }),
        handed_out(rank, memory, kCount, [](float* numbers) { numbers[500] *= 1.5f; })};
  };
  pair.time(broadcast(), kCount, variants);
  EXPECT_EQ(pair.wrong, 3 * 8);  // in each round
  EXPECT_EQ(pair.variants[0].wrong, 0);
  EXPECT_EQ(pair.variants[1].wrong, 2 * 8);
  EXPECT_EQ(pair.variants[2].wrong, 8);
  Setting last = broadcast();
  last.check = Check::kLast;
  pair.time(last, kCount, variants);
  EXPECT_EQ(pair.wrong, 3);
  Setting none = broadcast();
  none.check = Check::kNone;
  pair.time(none, kCount, variants);
  EXPECT_EQ(pair.wrong, std::nullopt);
  EXPECT_EQ(pair.variants[1].wrong, std::nullopt);
}

TEST(BenchTurns, FindWrongSums) {
  for (const auto collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
    Setting setting = broadcast();
    setting.task.collective = collective;
    Pair pair;
    pair.time(setting, kCount, [&](int rank, const HostMemory& memory) {
      std::byte* const data = memory.block(rank);
      return std::vector<Variant>{{data, data, true, [] {}}};  // does not add
    });
    ASSERT_TRUE(pair.wrong);
    EXPECT_GE(*pair.wrong, kCount) << name(collective);
  }
}

TEST(BenchTurns, WhatIsNotExactIsNotCompared) {
  Pair pair;
  pair.time(broadcast(), kCount, [&](int rank, const HostMemory& memory) {
    Variant other = handed_out(rank, memory, kCount, [](float* numbers) { numbers[0] = -1; });
    other.exact = false;
    return std::vector<Variant>{handed_out(rank, memory, kCount), other};
  });
  EXPECT_EQ(pair.wrong, 0);
  EXPECT_EQ(pair.variants[1].wrong, std::nullopt);
}

// Shares are equal, as in MPI: of three elements, the first rank has two.
TEST(BenchTurns, EqualSharesOfAReduceScatterLieFirst) {
  for (const std::size_t count : {std::size_t(3), kCount, kCount + 1}) {
    const std::size_t share = (count + 1) / 2;
    Setting setting = broadcast();
    setting.task.collective = Collective::kReduceScatter;
    Pair pair;
    Buffer sums[2] = {Buffer(share * sizeof(float)), Buffer(share * sizeof(float))};
    pair.time(setting, count, [&](int rank, const HostMemory& memory) {
      Variant variant{memory.block(rank), sums[rank].data(), true, {}};
      variant.shares = tools::bench::Shares::kEqual;
      variant.run = [&, rank, count, share] {
        float* const to = reinterpret_cast<float*>(sums[rank].data());
        for (std::size_t i = std::size_t(rank) * share, at = 0; i < count && at < share; ++i, ++at)
          to[at] = numbers(memory, 0)[i] + numbers(memory, 1)[i];
      };
      return std::vector<Variant>{variant};
    });
    EXPECT_EQ(pair.wrong, 0) << count;
  }
}

TEST(BenchTurns, ARoundTakesAsLongAsItsSlowestRank) {
  for (const int slow : {0, 1}) {
    Pair pair;
    pair.time(broadcast(), kCount, [&](int rank, const HostMemory& memory) {
      Variant variant = handed_out(rank, memory, kCount);
      variant.run = [rank, slow, hand_out = variant.run] {
        hand_out();
        if (rank == slow) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      };
      return std::vector<Variant>{variant};
    });
    EXPECT_EQ(pair.wrong, 0);
    EXPECT_EQ(pair.variants[0].times.rounds, 8);
    EXPECT_GE(pair.variants[0].times.least, 5000) << "microseconds";
    EXPECT_GE(pair.variants[0].times.median, 5000);
  }
}

// Rank 1, which writes nothing, copies the data that rank 0 needs some time to write.
TEST(BenchTurns, ARoundBeginsWhenAllHaveWrittenAndEndsBeforeAnyWritesAnew) {
  constexpr std::size_t kMany = std::size_t(1) << 20;
  Pair pair;
  pair.time(broadcast(), kMany, [&](int rank, const HostMemory& memory) {
    return std::vector<Variant>{handed_out(rank, memory, kMany)};
  });
  EXPECT_EQ(pair.wrong, 0);
}

TEST(BenchVerdict, SaysWhoseResultsWereWrong) {
  Verdict verdict;
  EXPECT_TRUE(verdict.right());
  verdict.add(0), verdict.add(std::nullopt), verdict.add_rival(0);
  EXPECT_TRUE(verdict.right());
  EXPECT_THAT(verdict.lines("MPI_Bcast"), IsEmpty());
  verdict.add(1);
  EXPECT_FALSE(verdict.right());
  EXPECT_THAT(verdict.lines("MPI_Bcast"), ElementsAre("1 element of results is wrong"));
  verdict.add(2), verdict.add_rival(4);
  EXPECT_THAT(verdict.lines("MPI_Bcast"),
              ElementsAre("3 elements of results are wrong",
                          "4 elements of MPI_Bcast's results are wrong"));
  Verdict of_mpi;
  of_mpi.add_rival(1);
  EXPECT_FALSE(of_mpi.right());
}

}  // namespace bench_turns_test
}  // namespace lockstep::test
