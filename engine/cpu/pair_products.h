// SPDX-License-Identifier: MIT
// Products of small matrices of bfloat16 with sums of float32, by the instruction of the processor
// that multiplies pairs: acc += a[0] b[0] + a[1] b[1] in each lane of 32 bits (VDPBF16PS), twice
// the products of float32 in the same time. Numbers below 2^-126 count as zero in it. For the
// matrices of Winograd's method behind its AVX-512 kernels, in their panels of 64, 32 or 16 columns
// (winograd-inl.h): a word of 32 bits holds the numbers of two neighbours along the axis that is
// summed, the first in its lower half. Pure functions; any thread.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cpu {

// Six vectors of 16 words: `words + j * stride` holds the float32 of the first of each pair, and
// gets both, the second from `second + 16 * j`, rounded to the nearest. Where `rows` is not null,
// the 16 first ones also go to `rows + j * stride`, and the second ones `row` words behind them.
void pack_pairs(const float* second, std::uint32_t* words, std::size_t stride, std::uint32_t* rows,
                std::size_t row);

// Whether this processor has it.
bool has_pair_products();

// c = a b: a is [rows, pairs] words, b [pairs, columns] in panels, c [rows, columns]. `rows` is
// rounded up to a multiple of 12; what the rows beyond it hold does not matter.
void multiply_pairs(const std::uint32_t* a, const std::uint32_t* b, std::size_t rows,
                    std::size_t pairs, std::size_t columns, float* c);

// sums += a' b, or = where `fresh`: a is [pairs, rows] words, b [pairs, columns], the sums [rows,
// columns] in panels. Rows and columns are multiples of 16.
void add_pairs(const std::uint32_t* a, const std::uint32_t* b, std::size_t pairs, std::size_t rows,
               std::size_t columns, bool fresh, float* sums);

}  // namespace lockstep::engine::cpu
