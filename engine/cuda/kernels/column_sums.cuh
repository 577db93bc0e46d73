// SPDX-License-Identifier: MIT
// Sums are float64. For 16-bit types, a few lines are first added in float32.
#pragma once
#include <cstddef>
#include <grid.cuh>

#include "engine/cuda/kernels/column_sums.h"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

// Returns dy where y is above 0, and zero elsewhere.
template <class T, unsigned kWidth>
__device__ Pack<T, kWidth> masked(const Pack<T, kWidth>& y, Pack<T, kWidth> dy) {
  for (unsigned w = 0; w < kWidth; ++w)
    if (!(wide(y.values[w]) > 0)) dy.values[w] = narrow<T>(0.0f);
  return dy;
}

template <class T, class Way>
struct ColumnAdder {
  static constexpr unsigned kWidth = Way::kWidth;
  const T* dy;  // the group's channels of the first line
  std::size_t channels;
  __device__ Pack<T, kWidth> read(std::size_t line) const {
    return load<kWidth>(dy + line * channels, Way::kAligned);
  }
  template <std::size_t kLines>
  __device__ void add(std::size_t, std::size_t, const Pack<T, kWidth> (&lines)[kLines],
                      ChannelSums<1, kWidth>& sums) const {
    Pack<FewSums<T>, kWidth> few{};
    for (const Pack<T, kWidth>& line : lines)
      for (unsigned w = 0; w < kWidth; ++w) few.values[w] += FewSums<T>(wide(line.values[w]));
    for (unsigned w = 0; w < kWidth; ++w) sums.values[0][w] += double(few.values[w]);
  }
};

template <class T>
struct ColumnsEnd {
  const ColumnSums& a;
  struct Nothing {};
  __device__ Nothing fetch(std::size_t) const { return {}; }
  __device__ void put(std::size_t c, const double (&totals)[1], Nothing) const {
    put_gradient(static_cast<T*>(a.db), c, totals[0], a.accumulate);
  }
};

template <class T>
__device__ void run(const ColumnSums& a) {
  const T* const dy = static_cast<const T*>(a.dy);
  go(a.channels, packs_at(dy), [&](auto way) {
    using Way = decltype(way);
    sum_lines<Way::kWidth, 1, 2>(
        std::size_t(a.state->examples) * a.positions, a.channels, a.partials,
        [&](std::size_t channel) {
          return ColumnAdder<T, Way>{dy + channel, a.channels};
        },
        ColumnsEnd<T>{a});
  });
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
