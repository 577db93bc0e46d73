// SPDX-License-Identifier: MIT
// Products of small bfloat16 matrices with float32 sums, by the processor's instruction for pairs:
// acc += a[0] b[0] + a[1] b[1] in each 32-bit lane (VDPBF16PS). It computes twice the products of
// float32 in the same time. Numbers below 2^-126 count as zero. The matrices are those of
// Winograd's method behind its AVX-512 kernels, in panels of 64, 32 or 16 columns (winograd-inl.h).
// A 32-bit word holds two adjacent numbers along the summed axis, the first in its lower half. Pure
// functions; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cpu {

// Writes pairs to six vectors of 16 words. `words + j * stride` holds the first number of each pair
// as float32 and receives both; the second comes from `second + 16 * j`. Both are rounded to the
// nearest. If `rows` is not null, the 16 first numbers also go to `rows + j * stride`, and the
// second ones `row` words further.
void pack_pairs(const float* second, std::uint32_t* words, std::size_t stride, std::uint32_t* rows,
                std::size_t row);

// Returns whether this processor has the instruction.
bool has_pair_products();

// Computes c = a b, with a [rows, pairs] words, b [pairs, columns] in panels, and c [rows,
// columns]. `rows` is rounded up to a multiple of 12; the contents of the extra rows do not matter.
void multiply_pairs(const std::uint32_t* a, const std::uint32_t* b, std::size_t rows,
                    std::size_t pairs, std::size_t columns, float* c);

// Computes sums += a' b, or = if `fresh`, with a [pairs, rows] words, b [pairs, columns], and the
// sums [rows, columns] in panels. Rows and columns are multiples of 16.
void add_pairs(const std::uint32_t* a, const std::uint32_t* b, std::size_t pairs, std::size_t rows,
               std::size_t columns, bool fresh, float* sums);

}  // namespace lockstep::engine::cpu
