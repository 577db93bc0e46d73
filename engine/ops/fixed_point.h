// SPDX-License-Identifier: MIT
// Floating-point numbers as integers on one grid, so that their sums are exact. Sums then have the
// same bits in every order, by every algorithm and over any number of hops. A sum over n ranks:
//
//   1. the extent of each block of numbers: the maximum of both of its members over all ranks;
//   2. `to_fixed`: each number in steps of that extent's grid, as one int64, float64 as two;
//   3. the sums of these, which never overflow if `bits` is fixed_bits(n);
//   4. `from_fixed`: back to floating point, rounded to the nearest, ties to even.
//
// Bits below the grid are cut off, number by number: with one limb at most 2^-(bits - 1) of the
// largest number of the block, with two 2^-(2 bits - 1). Nothing else is lost: subnormal numbers
// are kept, and partial sums may exceed the largest number. Infinities and NaNs count as zeros; the
// extent reports them. Operates on host memory at memory speed. It is compiled for each instruction
// set, with the same bits on all. Pure functions; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// The extent of several ranks is the maximum of each member over them.
struct FixedExtent {
  static constexpr std::int32_t kZeros = -100'000;
  std::int32_t exponent = kZeros;  // all finite numbers are smaller than 2^exponent
  std::int32_t unusual = 0;        // 1 if there are infinities or NaNs
};

// Defines the grid on which numbers are counted: steps of 2^(exponent - bits); those of the second
// limb are 2^(exponent - 2 bits).
struct FixedGrid {
  int exponent = FixedExtent::kZeros;
  int bits = 0;  // per limb
};

// Returns the bits of a limb such that n limbs can be added: 63 - log2 n, rounded down.
int fixed_bits(int n);
// Returns the number of int64s per element.
constexpr std::size_t fixed_limbs(DType dtype) {
  return dtype == DType::kFloat64 ? 2 : 1;
}

// Computes the extent of `count` elements of float32, float64, float16 or bfloat16. The other
// functions take the same types; `count` applies to all their arrays.
FixedExtent fixed_extent(DType dtype, const std::byte* x, std::size_t count);
// Converts to fixed point; `rest` is the second limb.
void to_fixed(DType dtype, const std::byte* x, std::size_t count, FixedGrid grid,
              std::int64_t* whole, std::int64_t* rest);
// Converts back. A scale other than 1 multiplies the rounded number and rounds again; 16-bit types
// are first rounded to float32.
void from_fixed(DType dtype, const std::int64_t* whole, const std::int64_t* rest, std::size_t count,
                FixedGrid grid, double scale, std::byte* y);

}  // namespace lockstep::engine
