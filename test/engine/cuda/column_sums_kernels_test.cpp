// SPDX-License-Identifier: MIT
// Tests bias gradients, which are the sums of dy over rows in use and positions, the same on every
// grid. Unused rows are neither read nor written. ReLU's mask clears elements of dy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/cuda/kernels/column_sums.cuh"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/kernel_numbers.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace column_sums_kernels_test {

constexpr std::size_t kPlanned = 4, kUsed = 3;

template <class T>
class ColumnSumsKernels : public testing::Test {};
using Types = testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(ColumnSumsKernels, Types);

TYPED_TEST(ColumnSumsKernels, AddRowsInUseOnEveryGrid) {
  using T = TypeParam;
  StepState state;
  state.examples = kUsed;
  for (const std::size_t channels : {1u, 7u, 8u, 40u, 264u}) {
    for (const std::size_t positions : {1u, 40u}) {
      const std::size_t columns = positions * channels, used = kUsed * columns;
      const std::vector<double> dy = held_by<T>(random_batch(kPlanned, kUsed, columns, 2));
      const std::vector<T> gradient = narrowed_to<T>(dy);
      const std::vector<double> before = held_by<T>(random_numbers(channels, 3));
      std::vector<double> expected(channels);
      for (std::size_t i = 0; i < used; ++i) expected[i % channels] += dy[i];
      std::vector<double> first;
      for (const LaunchShape& shape : {LaunchShape{1, 1}, LaunchShape{3, 2}, LaunchShape{1, 9}}) {
        SCOPED_TRACE(testing::Message() << channels << " channels, " << positions << " positions");
        const bool accumulate = shape.blocks == 3;
        std::vector<T> db = narrowed_to<T>(before);
        ColumnSums a{&state, positions, channels, gradient.data()};
        const unsigned chunks = sum_chunks(kPlanned * positions, line_groups(channels));
        std::vector<double> partial(chunks * channels, std::nan(""));
        std::vector<std::uint32_t> tickets(sum_tiles(line_groups(channels)));
        a.partials = {chunks, partial.data(), tickets.data()};
        a.db = db.data(), a.accumulate = accumulate;
        emulate(shape, [&] { run<T>(a); });
        if (!accumulate && first.empty()) first = as_doubles(db);
        if (!accumulate) {
          ASSERT_EQ(as_doubles(db), first);
        }
        ASSERT_EQ(std::ranges::count(tickets, 0u), long(tickets.size()));
        std::vector<double> sums = expected;
        for (std::size_t c = 0; c < channels && accumulate; ++c) sums[c] += before[c];
        ASSERT_NO_FATAL_FAILURE(expect_near(db, sums, channels, "db"));
      }
    }
  }
}

TYPED_TEST(ColumnSumsKernels, NoRowsGiveZeros) {
  using T = TypeParam;
  StepState state;
  std::vector<T> dy = narrowed_to<T>(random_batch(2, 0, 8, 1)), db(8, T(5.0f));
  std::vector<double> partial(8, 5);
  std::vector<std::uint32_t> tickets(sum_tiles(1));
  const ColumnSums a{&state, 1, 8, dy.data(), {1, partial.data(), tickets.data()}, db.data()};
  emulate({1, 1, kLineThreads}, [&] { run<T>(a); });
  for (const T sum : db) EXPECT_EQ(float(sum), 0);
}

TYPED_TEST(ColumnSumsKernels, AMaskedGradientIsZeroWhereTheOutputIs) {
  using T = TypeParam;
  StepState state;
  state.examples = kUsed;
  for (const std::size_t columns : {1u, 5u, 8u, 100u}) {
    for (const std::size_t lead : {0u, 1u}) {  // elements in front break the alignment
      std::vector<T> y(lead, T(1.0f)), dy(lead, T(1.0f));
      for (const double number : random_batch(kPlanned, kUsed, columns, 1))
        y.push_back(T(float(number)));
      y[lead] = T(0.0f);
      const std::vector<double> before = held_by<T>(random_batch(kPlanned, kUsed, columns, 2));
      for (const double number : before) dy.push_back(T(float(number)));
      const MaskGradient a{&state, columns, y.data() + lead, dy.data() + lead};
      emulate({2, 1, 32}, [&] { run<T>(a); });
      for (std::size_t i = 0; i < kUsed * columns; ++i)
        ASSERT_EQ(float(dy[lead + i]), float(y[lead + i]) > 0 ? float(before[i]) : 0.0f) << i;
      for (std::size_t i = kUsed * columns; i < before.size(); ++i)
        ASSERT_TRUE(std::isnan(float(dy[lead + i])));
    }
  }
}

}  // namespace column_sums_kernels_test
}  // namespace lockstep::engine::cuda
