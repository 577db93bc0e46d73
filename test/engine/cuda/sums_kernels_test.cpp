// SPDX-License-Identifier: MIT
#include "engine/cuda/kernels/sums.cuh"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "test/engine/cuda/kernel_batch.h"

namespace lockstep::engine::cuda {
namespace sums_kernels_test {

// Returns the sum of a batch, computed together with that of another batch.
double sum_of(const std::vector<double>& rows, std::size_t examples) {
  const StepState state = state_of({examples, rows.size(), 1});
  std::vector<double> ones(rows.size(), 1);
  double sums[] = {NAN, NAN};
  const BatchSum call{&state, {rows.data(), ones.data()}, sums};
  emulate({2, 1, BatchSum::kThreads}, [&] { run<float>(call); });
  EXPECT_EQ(sums[1], double(examples));
  double alone = NAN;
  emulate({1, 1, BatchSum::kThreads}, [&] {
    run<float>(BatchSum{&state, {rows.data(), nullptr}, &alone});
  });
  EXPECT_EQ(std::bit_cast<std::uint64_t>(alone), std::bit_cast<std::uint64_t>(sums[0]));
  return sums[0];
}

TEST(SumsKernels, SumOfABatchHasTheBitsOfTheBalancedTree) {
  for (const std::size_t count : {0, 1, 2, 3, 5, 100, 255, 256, 257, 511, 513, 1000, 4999}) {
    std::vector<double> rows(count + 3, NAN);
    for (std::size_t i = 0; i < count; ++i) rows[i] = numbers(7)(i) * std::pow(10, i % 9);
    const double wanted = balanced_sum(rows.data(), count);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(sum_of(rows, count)),
              std::bit_cast<std::uint64_t>(wanted))
        << count;
  }
}

TEST(SumsKernels, SumOfMinusZeroIsMinusZero) {
  EXPECT_TRUE(std::signbit(sum_of({-0.0}, 1)));
  EXPECT_TRUE(std::signbit(sum_of({-0.0, -0.0, -0.0}, 3)));
}

TEST(SumsKernels, ChecksumIsThatOfTheDefinition) {
  constexpr std::size_t kOffset = 1'000'000'007;
  alignas(16) unsigned char memory[1100];
  for (std::size_t i = 0; i < sizeof memory; ++i) memory[i] = (unsigned char)(i * 37 % 251 + 1);
  for (const std::size_t shift : {0, 2, 4}) {
    const unsigned char* const data = memory + shift;
    for (const std::size_t bytes : {0, 1, 3, 4, 6, 15, 16, 31, 1000, 1027}) {
      std::uint64_t wanted = 5;
      for (std::size_t at = 0; at < bytes; at += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, data + at, std::min<std::size_t>(4, bytes - at));
        wanted += checksum_word(word, kOffset + at / 4);
      }
      for (const LaunchShape& grid : kGrids) {
        std::uint64_t sum = 5;
        emulate(grid, [&] { run<float>(Checksum{data, bytes, kOffset, &sum}); });
        EXPECT_EQ(sum, wanted) << bytes << " bytes from " << shift;
      }
    }
  }
}

TEST(SumsKernels, ChecksumsOfRangesAreAddedToTheirSums) {
  alignas(16) std::uint16_t memory[3000];
  for (std::size_t i = 0; i < std::size(memory); ++i) memory[i] = std::uint16_t(i * 3037 + 1);
  const std::size_t ranges[] = {0, 16, 16, 2993, 7, 7, 2999, 3000};
  std::uint64_t wanted[] = {1, 2, 3, 4};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t bytes = 2 * (ranges[2 * i + 1] - ranges[2 * i]);
    emulate({1, 1, 32}, [&] {
      run<float>(Checksum{memory + ranges[2 * i], bytes, 0, wanted + i});
    });
  }
  for (const unsigned rows : {1u, 3u}) {
    std::uint64_t sums[] = {1, 2, 3, 4};
    emulate({4, rows, 64}, [&] { run<float>(Checksums{memory, ranges, 2, sums}); });
    EXPECT_EQ(std::vector(sums, sums + 4), std::vector(wanted, wanted + 4)) << rows;
  }
}

}  // namespace sums_kernels_test
}  // namespace lockstep::engine::cuda
