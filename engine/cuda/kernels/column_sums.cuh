// SPDX-License-Identifier: MIT
// Sums are taken in float64, so that they lose nothing to the order of adding.
#pragma once
#include <cstddef>
#include <grid.cuh>

#include "engine/cuda/kernels/column_sums.h"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

// dy where y is above 0.
template <class T, unsigned kWidth>
__device__ Pack<T, kWidth> masked(const Pack<T, kWidth>& y, Pack<T, kWidth> dy) {
  for (unsigned w = 0; w < kWidth; ++w)
    if (!(wide(y.values[w]) > 0)) dy.values[w] = narrow<T>(0.0f);
  return dy;
}

template <class T, unsigned kWidth>
struct ColumnLine {
  Pack<T, kWidth> y, dy;
};

template <class T, unsigned kWidth>
struct ColumnAdder {
  const T* y;
  T* dy;  // the group's channels of the first line
  std::size_t channels;
  bool aligned, masks;
  __device__ ColumnLine<T, kWidth> read(std::size_t line) const {
    ColumnLine<T, kWidth> result{};
    result.dy = load<kWidth>(dy + line * channels, aligned);
    if (y != nullptr) result.y = load<kWidth>(y + line * channels, aligned);
    return result;
  }
  __device__ void add(std::size_t line, const ColumnLine<T, kWidth>& values,
                      ChannelSums<1, kWidth>& sums) const {
    const Pack<T, kWidth> g = y == nullptr ? values.dy : masked(values.y, values.dy);
    if (masks) store(g, dy + line * channels, aligned);
    for (unsigned w = 0; w < kWidth; ++w) sums.values[0][w] += double(wide(g.values[w]));
  }
};

template <class T, unsigned kWidth>
__device__ void add_columns(const ColumnSums& a) {
  const T* const y = static_cast<const T*>(a.y);
  T* const dy = static_cast<T*>(a.dy);
  sum_lines<kWidth, 1>(std::size_t(a.state->examples) * a.positions, a.channels, a.chunks,
                       a.partial, [&](std::size_t channel) {
                         return ColumnAdder<T, kWidth>{y == nullptr ? nullptr : y + channel,
                                                       dy + channel, a.channels, packs_at(y, dy),
                                                       a.masks};
                       });
}

template <class T>
__device__ void run(const ColumnSums& a) {
  a.channels % kPack == 0 ? add_columns<T, kPack>(a) : add_columns<T, 1>(a);
}

template <class T>
__device__ void run(const ColumnSumsFinish& a) {
  T* const db = static_cast<T*>(a.db);
  add_chunks(a.partial, a.chunks, a.channels,
             [&](std::size_t c, double total) { put_gradient(db, c, total, a.accumulate); });
}

template <class T>
__device__ void run(const MaskGradient& a) {
  const T* const y = static_cast<const T*>(a.y);
  T* const dy = static_cast<T*>(a.dy);
  const std::size_t count = std::size_t(a.state->examples) * a.columns;
  const std::size_t packs = packs_at(y, dy) ? count / kPack : 0;
  const std::size_t first = std::size_t(block()) * threads() + thread();
  const std::size_t step = std::size_t(blocks()) * threads();
  for (std::size_t p = first; p < packs; p += step) {
    const std::size_t at = p * kPack;
    store(masked(load<kPack>(y + at, true), load<kPack>(dy + at, true)), dy + at, true);
  }
  for (std::size_t i = packs * kPack + first; i < count; i += step)
    store(masked(load<1>(y + i, false), load<1>(dy + i, false)), dy + i, false);
}

}  // namespace lockstep::engine::cuda
