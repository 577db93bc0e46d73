// SPDX-License-Identifier: MIT
// Grid-stride loops over elements, with accesses of 16 bytes if all addresses allow it. The
// assignment of elements to threads never changes a result.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>

namespace lockstep::engine::cuda {

// Holds values that are read and written in one access.
template <class T, std::size_t kValues>
struct alignas(kValues * sizeof(T)) Access {
  static constexpr std::size_t kCount = kValues;
  T values[kCount];
};
template <class T>
using WideAccess = Access<T, 16 / sizeof(T)>;

__device__ inline std::size_t first_index() {
  return std::size_t(block()) * threads() + thread();
}
__device__ inline std::size_t index_stride() {
  return std::size_t(blocks()) * threads();
}

// Grid-stride loops over rows, with one warp per row.
constexpr unsigned kWarp = 32;
__device__ inline unsigned lane() {
  return thread() % kWarp;
}
__device__ inline std::size_t first_warp() {
  return first_index() / kWarp;
}
__device__ inline std::size_t warp_stride() {
  return index_stride() / kWarp;
}

// Returns the same sum in all lanes, always added in the same order.
template <class V>
__device__ V sum_of_warp(V value) {
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Returns whether all these addresses, distances and lengths allow accesses of 16 bytes.
template <class... Values>
__device__ bool wide_accesses(Values... values) {
  return ((reinterpret_cast<std::uintptr_t>(values) | ...) % 16) == 0;
}

template <class Unit>
__device__ Unit read_unit(const Unit* from) {
  if constexpr (sizeof(Unit) == 16) {
    return read_wide(from);
  } else {
    return *from;
  }
}

struct Division {
  std::size_t quotient, remainder;
};
// Divides with 32 bits if possible, which is several times faster on a GPU than with 64.
__device__ inline Division divide(std::size_t number, std::size_t by) {
  if ((number | by) >> 32 == 0) {
    return {std::uint32_t(number) / std::uint32_t(by), std::uint32_t(number) % std::uint32_t(by)};
  }
  return {number / by, number % by};
}

// Computes to[i] = function(from[i]...) for the accesses first .. end - 1.
template <class Unit, class Function, class T, class... From>
__device__ void map_accesses(std::size_t first, std::size_t end, T* to, Function function,
                             const From*... from) {
  for (std::size_t i = first + first_index(); i < end; i += index_stride()) {
    const auto map = [&](auto... units) {
      Unit result;
      for (std::size_t k = 0; k < Unit::kCount; ++k)
        result.values[k] = function(units.values[k]...);
      return result;
    };
    reinterpret_cast<Unit*>(to)[i] = map(read_unit(reinterpret_cast<const Unit*>(from) + i)...);
  }
}

// Computes to[i] = function(from[i]...) for `count` values. `to` may be one of `from`.
template <class T, class Function, class... From>
__device__ void map_values(std::size_t count, T* to, Function function, const From*... from) {
  constexpr std::size_t kWide = WideAccess<T>::kCount;
  const std::size_t units = wide_accesses(to, from...) ? count / kWide : 0;
  map_accesses<WideAccess<T>>(0, units, to, function, from...);
  map_accesses<Access<T, 1>>(units * kWide, count, to, function, from...);
}

}  // namespace lockstep::engine::cuda
