// SPDX-License-Identifier: MIT
// Floating point numbers as whole numbers on one grid, so that sums of them are exact and have the
// same bits in every order, by every algorithm and over any number of hops. A sum over n ranks:
//
//   1. the extent of each block of numbers, the largest over all ranks of both of its parts;
//   2. `to_fixed`: each number in steps of that extent's grid, as one int64, float64 as two;
//   3. the sums of these, which never overflow where `bits` is fixed_bits(n);
//   4. `from_fixed`: back, rounded to the nearest, of two as near the even one.
//
// What lies below the grid is cut off, number by number: of one limb at most 2^-(bits - 1) of the
// largest number of the block, of two 2^-(2 bits - 1). Nothing else is lost: subnormal numbers are
// numbers like others, and sums that pass the largest number on their way come back. Numbers that
// are infinite or none are left out (as zeros); the extent says that there are some.
//
// In memory of the host, at the speed of memory: compiled for each instruction set, with the same
// bits on all. Pure functions; any thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// The largest over ranks of both parts is the extent of all of them.
struct FixedExtent {
  static constexpr std::int32_t kZeros = -100'000;
  std::int32_t exponent = kZeros;  // all finite numbers are smaller than 2^exponent
  std::int32_t unusual = 0;        // 1 where some are infinite, or none
};

// What numbers are counted in: steps of 2^(exponent - bits), of the second limb 2^(exponent - 2
// bits).
struct FixedGrid {
  int exponent = FixedExtent::kZeros;
  int bits = 0;  // of a limb
};

// So that n limbs can be added: 63 - log2 n, rounded down.
int fixed_bits(int n);
// int64s of an element.
constexpr std::size_t fixed_limbs(DType dtype) {
  return dtype == DType::kFloat64 ? 2 : 1;
}

// float32, float64, float16 or bfloat16; `count` elements of all that is pointed to.
FixedExtent fixed_extent(DType dtype, const std::byte* x, std::size_t count);
// `rest` is the second limb.
void to_fixed(DType dtype, const std::byte* x, std::size_t count, FixedGrid grid,
              std::int64_t* whole, std::int64_t* rest);
// A scale other than 1 multiplies what is rounded, which is rounded again (in 16 bits the first
// time to float32).
void from_fixed(DType dtype, const std::int64_t* whole, const std::int64_t* rest, std::size_t count,
                FixedGrid grid, double scale, std::byte* y);

}  // namespace lockstep::engine
