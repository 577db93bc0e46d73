// SPDX-License-Identifier: MIT
// The words of engine/cuda/kernels/device/lanes.cuh for kernels in the emulator.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers.cuh>

namespace lockstep::engine::cuda {

// Calls visit(lane of a, lane of b) for each lane of T and returns the word of its results.
template <class T, class Visit>
std::uint32_t map_lanes(std::uint32_t a, std::uint32_t b, Visit visit) {
  using Lanes = std::array<T, 4 / sizeof(T)>;
  const Lanes x = std::bit_cast<Lanes>(a), y = std::bit_cast<Lanes>(b);
  Lanes result;
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = visit(x[i], y[i]);
  return std::bit_cast<std::uint32_t>(result);
}

template <class T>
std::uint32_t larger_lanes(std::uint32_t a, std::uint32_t b) {
  return map_lanes<T>(a, b,
                      [](T x, T y) { return wide(x) > wide(y) || std::isnan(wide(x)) ? x : y; });
}

template <class T>
std::uint32_t same_lanes(std::uint32_t a, std::uint32_t b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  return map_lanes<Bits>(a, b, [](Bits x, Bits y) { return x == y ? Bits(-1) : Bits(0); });
}

template <class T>
std::uint32_t equal_lanes(std::uint32_t a, std::uint32_t b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  return map_lanes<Bits>(a, b, [](Bits x, Bits y) {
    return wide(std::bit_cast<T>(x)) == wide(std::bit_cast<T>(y)) ? Bits(-1) : Bits(0);
  });
}

inline std::uint32_t chosen_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t which) {
  const std::uint64_t both = std::uint64_t(b) << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= std::uint32_t(both >> (8 * (which >> (4 * i) & 7)) & 255) << (8 * i);
  return result;
}

}  // namespace lockstep::engine::cuda
