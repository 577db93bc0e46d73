// SPDX-License-Identifier: MIT
#include "engine/cuda/kernels/embedding.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "test/engine/cuda/kernel_batch.h"

namespace lockstep::engine::cuda {
namespace embedding_kernels_test {

template <class T>
class EmbeddingKernels : public testing::Test {};
TYPED_TEST_SUITE(EmbeddingKernels, ElementTypes);

// The grids include blocks that share the columns, and more lookups than a block reads at once.
constexpr std::array<LaunchShape, 4> kBackwardGrids{
    {{1, 1, 32}, {3, 2, 32}, {200, 1, 64}, {7, 3, 128}}};

struct TableCase {
  std::size_t examples, fields, columns, rows;
  bool sum;
};
constexpr std::array<TableCase, 6> kCases{{{0, 2, 3, 4, false},
                                           {1, 1, 1, 1, true},
                                           {50, 3, 8, 6, false},
                                           {50, 3, 8, 40, true},
                                           {9, 4, 35, 5, true},
                                           {9, 4, 70, 300, false}}};

// Returns places for all planned rows; those of unused rows lie far outside of the table.
std::vector<std::uint32_t> places_of(const TableCase& c) {
  std::vector<std::uint32_t> places((c.examples + 2) * c.fields, 0xfffffff0);
  for (std::size_t i = 0; i < c.examples * c.fields; ++i) {
    places[i] = random_bits(11, i, c.rows)[0] % std::uint32_t(c.rows);
  }
  return places;
}

BatchSize outputs_of(const TableCase& c) {
  return {c.examples, c.examples + 2, c.sum ? c.columns : c.fields * c.columns};
}

TYPED_TEST(EmbeddingKernels, RowsAreThoseOfTheIds) {
  for (const std::size_t examples : {0, 1, 40}) {
    const BatchSize size{examples, 41, 5};
    const StepState state = state_of(size);
    Batch<TypeParam> x(size, 0, [](std::size_t i) { return double(i * 7 % 100); });
    for (const LaunchShape& grid : kGrids) {
      std::vector<std::uint32_t> places(41 * 3, 77);
      Problem problem;
      const EmbeddingRows call{&state, x.data(), 5, 1, 3, 100, places.data(), &problem};
      emulate(grid, [&] { run<TypeParam>(call); });
      EXPECT_EQ(problem.first, Problem::kNone);
      for (std::size_t i = 0; i < places.size(); ++i) {
        const std::size_t row = i / 3, field = i % 3, at = row * 5 + 1 + field;
        EXPECT_EQ(places[i], row < examples ? field * 100 + std::size_t(x[at]) : 77);
      }
    }
  }
}

TYPED_TEST(EmbeddingKernels, TheFirstPickWithoutAnIdIsToldAndTakesTheFirstRow) {
  for (const float bad : {8.0f, -1.0f, 2.5f, 60000.0f, NAN}) {
    const BatchSize size{20, 20, 2};
    const StepState state = state_of(size);
    Batch<TypeParam> x(size, 0, [](std::size_t i) { return double(i % 8); });
    x.data()[23] = x.data()[31] = TypeParam(bad);
    for (const LaunchShape& grid : kGrids) {
      std::vector<std::uint32_t> places(40);
      Problem problem;
      const EmbeddingRows call{&state, x.data(), 2, 0, 2, 8, places.data(), &problem};
      emulate(grid, [&] { run<TypeParam>(call); });
      EXPECT_EQ(problem.first, 23u);
      EXPECT_EQ(places[23], 8u);
      EXPECT_EQ(places[22], 22u % 8);
    }
  }
}

// The results are exact: float32 sums in the order of the fields.
TYPED_TEST(EmbeddingKernels, ForwardGivesTheRowsOrTheirSum) {
  for (const TableCase& c : kCases) {
    const BatchSize size = outputs_of(c);
    const StepState state = state_of(size);
    const auto places = places_of(c);
    for (const std::size_t shift : {0, 1}) {
      Batch<TypeParam> w({c.rows, c.rows, c.columns}, shift, numbers(1)), wanted(size, shift);
      for (std::size_t r = 0; r < c.examples; ++r) {
        for (std::size_t column = 0; column < c.columns; ++column) {
          float sum = 0;
          for (std::size_t f = 0; f < c.fields; ++f) {
            const TypeParam value = w.data()[places[r * c.fields + f] * c.columns + column];
            if (!c.sum) wanted.data()[(r * c.fields + f) * c.columns + column] = value;
            sum = f == 0 ? float(value) : sum + float(value);
          }
          if (c.sum) wanted.data()[r * c.columns + column] = TypeParam(sum);
        }
      }
      for (const LaunchShape& grid : kGrids) {
        Batch<TypeParam> y(size, shift);
        const EmbeddingForward call{&state,   places.data(), w.data(), y.data(),
                                    c.fields, c.columns,     c.sum};
        emulate(grid, [&] { run<TypeParam>(call); });
        EXPECT_TRUE(y.same_bits(wanted));
      }
    }
  }
}

// The results are exact: the previous value or 0, plus float32 sums in the order of the lookups.
// Rows without a lookup keep their values.
TYPED_TEST(EmbeddingKernels, BackwardAddsEachRowInTheOrderOfThePicks) {
  for (const TableCase& c : kCases) {
    const BatchSize size = outputs_of(c), table{c.rows, c.rows, c.columns};
    const StepState state = state_of(size);
    const auto places = places_of(c);
    Batch<TypeParam> dy(size, 0, numbers(2));
    for (const bool accumulate : {false, true}) {
      Batch<TypeParam> wanted(table, 0, numbers(3));
      std::vector<float> sums(c.rows * c.columns);
      std::vector<bool> picked(c.rows);
      for (std::size_t i = 0; accumulate && i < sums.size(); ++i) sums[i] = float(wanted[i]);
      for (std::size_t pick = 0; pick < c.examples * c.fields; ++pick) {
        picked[places[pick]] = true;
        for (std::size_t k = 0; k < c.columns; ++k) {
          const std::size_t from = (c.sum ? pick / c.fields : pick) * c.columns + k;
          sums[places[pick] * c.columns + k] += float(dy.data()[from]);
        }
      }
      for (std::size_t i = 0; i < sums.size(); ++i) {
        if (picked[i / c.columns]) wanted.data()[i] = TypeParam(sums[i]);
      }
      for (const LaunchShape& grid : kBackwardGrids) {
        Batch<TypeParam> dw(table, 0, numbers(3));
        const EmbeddingBackward call{&state,   places.data(), dy.data(), dw.data(),
                                     c.fields, c.columns,     c.sum,     accumulate};
        emulate(grid, [&] { run<TypeParam>(call); });
        EXPECT_TRUE(dw.same_bits(wanted));
      }
    }
  }
}

}  // namespace embedding_kernels_test
}  // namespace lockstep::engine::cuda
