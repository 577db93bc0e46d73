// SPDX-License-Identifier: MIT
// 32-bit words that hold one lane per neighbor: one float32, or two numbers of a 16-bit type. An
// instruction works on all lanes of a word. The tests have a file of the same name.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "engine/base/bfloat16.h"
#include "engine/base/half.h"

namespace lockstep::engine::cuda {

// Converts between a word and a pair of numbers.
template <class T>
__device__ inline auto pair_of(std::uint32_t word) {
  if constexpr (std::is_same_v<T, Half>)
    return __half2(std::bit_cast<__half2_raw>(word));
  else
    return __nv_bfloat162(std::bit_cast<__nv_bfloat162_raw>(word));
}
__device__ inline std::uint32_t word_of(__half2_raw pair) {
  return std::bit_cast<std::uint32_t>(pair);
}
__device__ inline std::uint32_t word_of(__nv_bfloat162_raw pair) {
  return std::bit_cast<std::uint32_t>(pair);
}

// Returns the larger number of each lane, or NaN if either is NaN.
template <class T>
__device__ inline std::uint32_t larger_lanes(std::uint32_t a, std::uint32_t b) {
  if constexpr (sizeof(T) == 4) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;"
        : "=f"(result)
        : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(result);
  } else {
    return word_of(__hmax2_nan(pair_of<T>(a), pair_of<T>(b)));
  }
}

// Returns ones in the lanes whose numbers are equal. NaN equals nothing.
template <class T>
__device__ inline std::uint32_t equal_lanes(std::uint32_t a, std::uint32_t b) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(a) == __uint_as_float(b) ? ~0u : 0u;
  } else {
    return __heq2_mask(pair_of<T>(a), pair_of<T>(b));
  }
}

// Returns ones in the lanes whose integers are equal. The integers are below 256, and thus denormal
// numbers of each type.
template <class T>
__device__ inline std::uint32_t same_lanes(std::uint32_t a, std::uint32_t b) {
  if constexpr (sizeof(T) == 4) {
    return a == b ? ~0u : 0u;
  } else {
    return equal_lanes<Half>(a, b);
  }
}

// Returns four bytes of `a` (0 to 3) and `b` (4 to 7), selected by the digits of `which`.
__device__ inline std::uint32_t chosen_bytes(std::uint32_t a, std::uint32_t b,
                                             std::uint32_t which) {
  return __byte_perm(a, b, which);
}

}  // namespace lockstep::engine::cuda
