// SPDX-License-Identifier: MIT
// Tests the values by which `lockstep bench` distinguishes right sums from wrong ones.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tools/bench/values.h"

namespace lockstep::test {
namespace bench_values_test {

using engine::DType;
using engine::ReduceOp;
using tools::bench::Values;

constexpr std::size_t kCount = 5000;

template <class T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}
template <class T>
const std::byte* bytes(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

// Returns the sum of some ranks, computed locally.
template <class T>
std::vector<T> added(Values& values, int round, int ranks = 3) {
  std::vector<T> sum(kCount), one(kCount);
  for (int rank = 0; rank < ranks; ++rank) {
    values.write(bytes(one), 0, kCount, rank, round);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] = T(sum[i] + one[i]);
  }
  return sum;
}

template <class T>
void every_wrong_element_counts(DType dtype) {
  Values values(dtype, ReduceOp::kSum, false, 3);
  for (const int round : {0, 1, 77}) {
    std::vector<T> sum = added<T>(values, round);
    EXPECT_EQ(values.wrong(bytes(sum), 0, kCount, round), 0u);
    sum[0] = T(sum[0] + 1), sum[1952] = T(sum[1952] - 1), sum[kCount - 1] = T{};
    EXPECT_EQ(values.wrong(bytes(sum), 0, kCount, round), 3u);
  }
}

TEST(BenchValues, EveryWrongElementCounts) {
  every_wrong_element_counts<float>(DType::kFloat32);
  every_wrong_element_counts<double>(DType::kFloat64);
  every_wrong_element_counts<std::int32_t>(DType::kInt32);
  every_wrong_element_counts<std::int64_t>(DType::kInt64);
  every_wrong_element_counts<engine::Half>(DType::kFloat16);
  every_wrong_element_counts<engine::BFloat16>(DType::kBFloat16);
}

// Sums are exact in any order and with intermediate rounding: here the ranks are added one by one,
// and each sum is rounded.
TEST(BenchValues, SumsOf16BitsAreExactForManyRanks) {
  for (const int ranks : {2, 4, 5, 33, 64, 256}) {
    Values halves(DType::kFloat16, ReduceOp::kSum, false, ranks);
    EXPECT_EQ(halves.wrong(bytes(added<engine::Half>(halves, 3, ranks)), 0, kCount, 3), 0u);
    Values others(DType::kBFloat16, ReduceOp::kSum, false, ranks);
    EXPECT_EQ(others.wrong(bytes(added<engine::BFloat16>(others, 3, ranks)), 0, kCount, 3), 0u);
  }
}

template <class T>
void products_are_exact(DType dtype) {
  for (const int ranks : {1, 2, 14, 15, 100}) {
    Values values(dtype, ReduceOp::kProduct, false, ranks);
    std::vector<T> product(kCount, T(1.0f)), one(kCount);
    for (int rank = 0; rank < ranks; ++rank) {
      values.write(bytes(one), 0, kCount, rank, 5);
      for (std::size_t i = 0; i < kCount; ++i) product[i] = T(product[i] * one[i]);
    }
    EXPECT_EQ(values.wrong(bytes(product), 0, kCount, 5), 0u) << ranks;
    if (ranks > 1) {  // not the values of one rank
      EXPECT_GT(values.wrong(bytes(one), 0, kCount, 5), kCount / 4) << ranks;
    }
  }
}

TEST(BenchValues, ProductsAreExact) {
  products_are_exact<float>(DType::kFloat32);
  products_are_exact<double>(DType::kFloat64);
  products_are_exact<std::int32_t>(DType::kInt32);
  products_are_exact<std::int64_t>(DType::kInt64);
  products_are_exact<engine::Half>(DType::kFloat16);
  products_are_exact<engine::BFloat16>(DType::kBFloat16);
}

// Sums of another round, of too few ranks, or from another block are wrong.
TEST(BenchValues, NumbersFromElsewhereAreWrong) {
  Values values(DType::kFloat32, ReduceOp::kSum, false, 3);
  std::vector<float> sum = added<float>(values, 4), one(kCount);
  EXPECT_EQ(values.wrong(bytes(sum), 0, kCount, 5), kCount);
  values.write(bytes(one), 0, kCount, 2, 4);
  for (std::size_t i = 0; i < kCount; ++i) sum[i] -= one[i];
  EXPECT_EQ(values.wrong(bytes(sum), 0, kCount, 4), kCount);
  sum = added<float>(values, 4);
  for (const std::size_t shift : {std::size_t(1), std::size_t(64), engine::kBlock})
    EXPECT_EQ(values.wrong(bytes(sum) + shift * sizeof(float), 0, kCount - shift, 4),
              kCount - shift);
}

// The values of a broadcast differ from those of any other rank or round.
TEST(BenchValues, CopiesAreOfTheirRank) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Values values(dtype, ReduceOp::kSum, false, 1);
    std::vector<double> room(kCount);
    std::byte* const one = bytes(room);
    const std::size_t width = engine::size_of(dtype);
    values.write(one, 0, kCount, 2, 4);
    EXPECT_EQ(values.wrong_copies(one, 0, kCount, 2, 4), 0u);
    EXPECT_EQ(values.wrong_copies(one + 70 * width, 70, kCount - 70, 2, 4), 0u);
    EXPECT_EQ(values.wrong_copies(one, 0, kCount, 1, 4), kCount);
    EXPECT_EQ(values.wrong_copies(one, 0, kCount, 2, 5), kCount);
    EXPECT_EQ(values.wrong_copies(one + width, 0, kCount - 1, 2, 4), kCount - 1);
    one[0] ^= std::byte(0xff), one[width * (kCount - 1)] ^= std::byte(0xff);
    EXPECT_EQ(values.wrong_copies(one, 0, kCount, 2, 4), 2u);
  }
}

TEST(BenchValues, APartIsComparedFromItsFirstElement) {
  Values values(DType::kFloat32, ReduceOp::kSum, false, 3);
  std::vector<float> sum = added<float>(values, 2);
  for (const std::size_t first : {1u, 60u, 61u, 1024u, 4999u})
    EXPECT_EQ(values.wrong(bytes(sum) + first * sizeof(float), first, kCount - first, 2), 0u);
}

}  // namespace bench_values_test
}  // namespace lockstep::test
