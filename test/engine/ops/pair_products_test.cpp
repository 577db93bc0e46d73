// SPDX-License-Identifier: MIT
// Tests products of pairs of bfloat16, which are exact if all factors are bfloat16 numbers. On
// processors without such an instruction, the gradients are computed in float32 and must be as
// good.
#include "engine/cpu/pair_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "test/engine/ops/conformance.h"

namespace lockstep::engine {
namespace pair_products_test {

std::uint32_t pair(double low, double high) {
  return BFloat16(float(low)).bits | std::uint32_t(BFloat16(float(high)).bits) << 16;
}

std::vector<double> whole_numbers(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> numbers(count);
  for (double& number : numbers) number = double(random.below(17)) - 8;
  return numbers;
}

// Returns the index of element (row, column) in panels of 64, then 32, then 16 columns.
std::size_t in_panels(std::size_t rows, std::size_t columns, std::size_t row, std::size_t column) {
  std::size_t begin = 0;
  for (;;) {
    const std::size_t left = columns - begin, width = left >= 64 ? 64 : left >= 32 ? 32 : 16;
    if (column < begin + width) return begin * rows + row * width + (column - begin);
    begin += width;
  }
}

TEST(PairProducts, OfSmallWholeNumbersAreExact) {
  if (!cpu::has_pair_products()) GTEST_SKIP() << "no such instruction here";
  const std::size_t pairs = 9, depth = 2 * pairs;
  for (std::size_t columns : {16u, 48u, 64u, 176u}) {
    for (std::size_t rows : {1u, 6u, 13u, 24u}) {
      const std::size_t padded = (rows + 11) / 12 * 12;
      const std::vector<double> a = whole_numbers(padded * depth, rows);
      const std::vector<double> b = whole_numbers(depth * columns, columns);
      std::vector<std::uint32_t> a_words(padded * pairs), b_words(pairs * columns);
      for (std::size_t i = 0; i < a_words.size(); ++i) a_words[i] = pair(a[2 * i], a[2 * i + 1]);
      for (std::size_t k = 0; k < pairs; ++k) {
        for (std::size_t j = 0; j < columns; ++j) {
          b_words[in_panels(pairs, columns, k, j)] =
              pair(b[2 * k * columns + j], b[(2 * k + 1) * columns + j]);
        }
      }
      std::vector<float> c(padded * columns);
      cpu::multiply_pairs(a_words.data(), b_words.data(), rows, pairs, columns, c.data());
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (std::size_t k = 0; k < depth; ++k) sum += a[i * depth + k] * b[k * columns + j];
          ASSERT_EQ(double(c[i * columns + j]), sum) << rows << " rows, " << columns << " columns";
        }
      }
    }
  }
}

TEST(PairProducts, AreAddedToTheSums) {
  if (!cpu::has_pair_products()) GTEST_SKIP() << "no such instruction here";
  const std::size_t pairs = 5, depth = 2 * pairs;
  for (std::size_t rows : {16u, 48u}) {
    for (std::size_t columns : {16u, 32u, 112u}) {
      const std::vector<double> a = whole_numbers(depth * rows, rows);
      const std::vector<double> b = whole_numbers(depth * columns, columns);
      std::vector<std::uint32_t> a_words(pairs * rows), b_words(pairs * columns);
      for (std::size_t k = 0; k < pairs; ++k) {
        for (std::size_t i = 0; i < rows; ++i) {
          a_words[k * rows + i] = pair(a[2 * k * rows + i], a[(2 * k + 1) * rows + i]);
        }
        for (std::size_t j = 0; j < columns; ++j) {
          b_words[k * columns + j] = pair(b[2 * k * columns + j], b[(2 * k + 1) * columns + j]);
        }
      }
      std::vector<float> sums(rows * columns, 100);  // the previous values do not matter
      cpu::add_pairs(a_words.data(), b_words.data(), pairs, rows, columns, true, sums.data());
      cpu::add_pairs(a_words.data(), b_words.data(), pairs, rows, columns, false, sums.data());
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (std::size_t k = 0; k < depth; ++k) sum += 2 * a[k * rows + i] * b[k * columns + j];
          ASSERT_EQ(double(sums[in_panels(rows, columns, i, j)]), sum) << rows << "x" << columns;
        }
      }
    }
  }
}

// The inputs and the gradients of outputs are small integers, and each filter has one nonzero
// weight per channel. Every value that Winograd's method transforms then has 8 significant bits, so
// the gradients are exact.
TEST_F(Conformance, GradientsByPairsAreExactWhereTheirFactorsAre) {
  for (const ConvolutionSpec& s :
       {ConvolutionSpec{8, 8, 16, 16, 3, 3, 1, 1}, ConvolutionSpec{7, 9, 32, 48, 3, 3, 1, 0},
        ConvolutionSpec{5, 6, 16, 80, 3, 3, 1, 2}}) {
    for (std::size_t rows : {1u, 3u, 20u}) {
      const Shape in{rows, s.height, s.width, s.channels};
      const Shape out{rows, s.output_height(), s.output_width(), s.filters};
      const Shape kernel{s.filters, 3, 3, s.channels};
      Random random(rows);
      std::vector<double> x(in.elements()), dy(out.elements()), w(kernel.elements(), 0);
      for (double& number : x) number = double(random.below(5)) - 2;
      for (double& number : dy) number = double(random.below(3)) - 1;
      for (std::size_t f = 0; f < s.filters; ++f) {
        for (std::size_t c = 0; c < s.channels; ++c) {
          w[(f * 9 + random.below(9)) * s.channels + c] = random.below(2) == 0 ? 576 : -576;
        }
      }
      compare_products(
          fmt::format("{}x{}x{} to {}, {} rows", s.height, s.width, s.channels, s.filters, rows),
          [&](Machine& m) {
            const StepState* const state = m.publish(state_of(rows));
            const Operand from = m.operand(in, x), weights = m.operand(kernel, w);
            const Operand gradient = m.operand(out, dy), dx = m.empty(in);
            const Operand dw = m.empty(kernel), db = m.empty({s.filters});
            m.ops().convolution_backward(state, s, from.tensor, gradient.tensor, gradient.tensor,
                                         weights.tensor, dx.tensor, dw.tensor, db.tensor, false);
            return Results{dx.values(), dw.values(), db.values()};
          });
      if (enough_failed()) return;
    }
  }
}

}  // namespace pair_products_test
}  // namespace lockstep::engine
