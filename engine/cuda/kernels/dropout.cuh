// SPDX-License-Identifier: MIT
// The dropout kernel. A thread draws the four random numbers of four units of an example.
#pragma once
#include <cstddef>
#include <numbers.cuh>

#include "engine/base/philox.h"
#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/pointwise.h"
#include "engine/ops/definitions.h"

namespace lockstep::engine::cuda {

template <class T>
__device__ void run(const Dropout& a) {
  constexpr std::size_t kUnits = 4;
  using Quad = Access<T, kUnits>;
  const std::size_t quads = (a.columns + kUnits - 1) / kUnits;
  const std::size_t count = std::size_t(a.state->examples) * quads;
  const float factor = float(1 / (1 - a.rate));
  // If rows are whole quads, a quad is one access of 8 or 16 bytes.
  const bool whole = a.columns % kUnits == 0 && wide_accesses(a.x, a.y);
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    const auto [row, quad] = divide(i, quads);
    const auto bits =
        philox(a.key, std::uint64_t(a.state->ids[row]), dropout_position(a.state->step, quad));
    const auto drop = [&](std::size_t unit, T x) {
      return dropout_keeps(bits[unit], a.rate) ? narrow<T>(wide(x) * factor) : narrow<T>(0.0f);
    };
    if (whole) {
      Quad values = static_cast<const Quad*>(a.x)[i];
      for (std::size_t k = 0; k < kUnits; ++k) values.values[k] = drop(k, values.values[k]);
      static_cast<Quad*>(a.y)[i] = values;
      continue;
    }
    const std::size_t left = a.columns - quad * kUnits, at = row * a.columns + quad * kUnits;
    for (std::size_t k = 0; k < kUnits && k < left; ++k) {
      static_cast<T*>(a.y)[at + k] = drop(k, static_cast<const T*>(a.x)[at + k]);
    }
  }
}

}  // namespace lockstep::engine::cuda
