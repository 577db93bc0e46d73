// SPDX-License-Identifier: MIT
// The numbers by which `lockstep bench` tells right sums from wrong ones.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tools/bench/values.h"

namespace lockstep::test {
namespace {

using engine::DType;
using engine::ReduceOp;
using tools::bench::Values;

constexpr std::size_t kCount = 5000;

template <class T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// The result of three ranks, made here.
template <class T>
std::vector<T> added(Values& values, int round) {
  std::vector<T> sum(kCount), one(kCount);
  for (int rank = 0; rank < 3; ++rank) {
    values.write(bytes(one), 0, kCount, rank, round);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += one[i];
  }
  return sum;
}

template <class T>
void every_wrong_element_counts(DType dtype) {
  Values values(dtype, ReduceOp::kSum, false, 3);
  for (const int round : {0, 1, 77}) {
    std::vector<T> sum = added<T>(values, round);
    EXPECT_EQ(values.wrong(bytes(sum), 0, kCount, round), 0u);
    sum[0] += 1, sum[1952] -= 1, sum[kCount - 1] = 0;
    EXPECT_EQ(values.wrong(bytes(sum), 0, kCount, round), 3u);
  }
}

TEST(BenchValues, EveryWrongElementCounts) {
  every_wrong_element_counts<float>(DType::kFloat32);
  every_wrong_element_counts<double>(DType::kFloat64);
  every_wrong_element_counts<std::int32_t>(DType::kInt32);
  every_wrong_element_counts<std::int64_t>(DType::kInt64);
}

// Sums of another round, of a rank too few, and from another block are not taken for right ones.
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

TEST(BenchValues, APartIsComparedFromItsFirstElement) {
  Values values(DType::kFloat32, ReduceOp::kSum, false, 3);
  std::vector<float> sum = added<float>(values, 2);
  for (const std::size_t first : {1u, 60u, 61u, 1024u, 4999u})
    EXPECT_EQ(values.wrong(bytes(sum) + first * sizeof(float), first, kCount - first, 2), 0u);
}

}  // namespace
}  // namespace lockstep::test
