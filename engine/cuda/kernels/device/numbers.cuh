// SPDX-License-Identifier: MIT
// Conversions between the element types and float32 by GPU instructions. The tests have a file of
// the same name. Widening is exact. Rounding is to nearest even, and overflows to infinity. NaN
// stays NaN, but its bits may change.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "engine/base/bfloat16.h"
#include "engine/base/half.h"

namespace lockstep::engine::cuda {

__device__ inline float wide(float value) {
  return value;
}
__device__ inline float wide(BFloat16 value) {
  return __uint_as_float(unsigned(value.bits) << 16);
}
__device__ inline float wide(Half value) {
  return __half2float(__ushort_as_half(value.bits));
}

template <class T>
__device__ T narrow(float value) = delete;
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline BFloat16 narrow<BFloat16>(float value) {
  BFloat16 result;
  result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return result;
}
template <>
__device__ inline Half narrow<Half>(float value) {
  Half result;
  result.bits = __half_as_ushort(__float2half_rn(value));
  return result;
}

// Returns the larger number of each of two packed pairs. NaN of `pair` stays NaN.
template <class T>
__device__ std::uint32_t at_least(std::uint32_t pair, std::uint32_t floor) {
  std::uint32_t result;
  if constexpr (std::is_same_v<T, Half>)
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(pair), "r"(floor));
  else
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(pair), "r"(floor));
  return result;
}

}  // namespace lockstep::engine::cuda
