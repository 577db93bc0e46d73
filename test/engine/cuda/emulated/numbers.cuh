// SPDX-License-Identifier: MIT
// The conversions of engine/cuda/kernels/device/numbers.cuh for kernels in the emulator,
// implemented by engine/base.
#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "engine/base/bfloat16.h"
#include "engine/base/half.h"

namespace lockstep::engine::cuda {

inline float wide(float value) {
  return value;
}
inline float wide(BFloat16 value) {
  return float(value);
}
inline float wide(Half value) {
  return float(value);
}

template <class T>
T narrow(float value) {
  return T(value);
}

template <class T>
std::uint32_t at_least(std::uint32_t pair, std::uint32_t floor) {
  auto numbers = std::bit_cast<std::array<T, 2>>(pair);
  const auto least = std::bit_cast<std::array<T, 2>>(floor);
  for (std::size_t k = 0; k < 2; ++k)
    if (float(numbers[k]) < float(least[k])) numbers[k] = least[k];
  return std::bit_cast<std::uint32_t>(numbers);
}

}  // namespace lockstep::engine::cuda
