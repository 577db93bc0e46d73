// SPDX-License-Identifier: MIT
// The kernels of rows.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/rows.h"

namespace lockstep::engine::cuda {

__device__ inline void clear_bytes(void* to, std::size_t first, std::size_t count) {
  const auto zero = [] { return std::uint8_t(0); };
  map_values(count, static_cast<std::uint8_t*>(to) + first, zero);
}

template <class T>
__device__ void run(const CopyRows& a) {
  const auto same = [](std::uint8_t byte) { return byte; };
  map_values(std::size_t(a.state->examples) * a.row_bytes, static_cast<std::uint8_t*>(a.y), same,
             static_cast<const std::uint8_t*>(a.x));
}

template <class T>
__device__ void run(const ClearRows& a) {
  clear_bytes(a.y, 0, std::size_t(a.state->examples) * a.row_bytes);
}

template <class T>
__device__ void run(const ClearRest& a) {
  const std::size_t used = std::size_t(a.state->examples) * a.row_bytes;
  clear_bytes(a.y, used, a.rows * a.row_bytes - used);
}

template <class Unit>
__device__ void copy_column_units(const CopyColumns& a) {
  const std::size_t width = a.count / sizeof(Unit);  // copied units per row
  const std::size_t count = std::size_t(a.state->examples) * width;
  const Unit* const x = static_cast<const Unit*>(a.x) + a.from / sizeof(Unit);
  Unit* const y = static_cast<Unit*>(a.y) + a.to / sizeof(Unit);
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    const auto [row, column] = divide(i, width);
    y[row * (a.y_row_bytes / sizeof(Unit)) + column] =
        x[row * (a.x_row_bytes / sizeof(Unit)) + column];
  }
}

template <class T>
__device__ void run(const CopyColumns& a) {
  if (wide_accesses(a.x, a.y, a.x_row_bytes, a.y_row_bytes, a.from, a.to, a.count)) {
    copy_column_units<WideAccess<T>>(a);
  } else {
    copy_column_units<T>(a);
  }
}

}  // namespace lockstep::engine::cuda
