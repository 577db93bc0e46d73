// SPDX-License-Identifier: MIT
// Bodies of the kernels in thin.h. Forward a thread has kPack filters of some positions, and
// weights lie in float32 where all threads of its block reach them. Backward it has four filters,
// and a sum for each of the taps and one for the bias.
#pragma once
#include <cstddef>
#include <grid.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/thin.h"

namespace lockstep::engine::cuda {

// Where the kernel of one position lies: its row of the batch, and its upper left corner, which
// wraps where it is above or left of the image.
struct ThinCorner {
  std::size_t row;
  unsigned y, x;
  __device__ ThinCorner(const ThinSizes& s, std::size_t line) {
    const auto [lines, ox] = divide(line, s.output_width);
    const auto [of_row, oy] = divide(lines, s.output_height);
    row = of_row;
    y = unsigned(oy) * s.stride - s.padding;
    x = unsigned(ox) * s.stride - s.padding;
  }
  // The number that a tap sees; zero beyond the image.
  template <class T>
  __device__ float at(const ThinSizes& s, const T* images, unsigned tap) const {
    const unsigned pixel = tap / s.channels, ky = pixel / s.kernel_width;
    const unsigned iy = y + ky, ix = x + pixel - ky * s.kernel_width;
    if (iy >= s.height || ix >= s.width) return 0;
    return wide(
        images[((row * s.height + iy) * s.width + ix) * s.channels + tap - pixel * s.channels]);
  }
};

template <class T>
__device__ void run(const ThinForward& a) {
  const ThinSizes& s = a.sizes;
  const unsigned taps = s.taps();
  const T* const w = static_cast<const T*>(a.w);
  const T* const x = static_cast<const T*>(a.x);
  const T* const bias = static_cast<const T*>(a.bias);
  T* const y = static_cast<T*>(a.y);
  float* const weights = shared<float, kMostThinTaps * kMostThinFilters>();  // [taps][filters]
  for (unsigned i = thread(); i < taps * s.filters; i += threads()) {
    const unsigned tap = i / s.filters;
    weights[i] = wide(w[(i - tap * s.filters) * taps + tap]);
  }
  barrier();
  const Threads<kPack> mine(s.filters);
  const bool aligned = packs_at(y);
  const std::size_t lines = std::size_t(a.state->examples) * s.output_height * s.output_width;
  for (std::size_t tile = block(); tile < mine.tiles(); tile += blocks()) {
    if (!mine.works(tile)) continue;
    const unsigned filter = unsigned(mine.channel(tile));
    Pack<float, kPack> start{};
    for (unsigned v = 0; v < kPack && bias != nullptr; ++v)
      start.values[v] = wide(bias[filter + v]);
    const std::size_t first = std::size_t(block_row()) * mine.slots + mine.slot;
    const std::size_t step = std::size_t(block_rows()) * mine.slots;
    for (std::size_t line = first; line < lines; line += step) {
      const ThinCorner corner(s, line);
      Pack<float, kPack> sums{};
      for (unsigned tap = 0; tap < taps; ++tap) {
        const float seen = corner.at(s, x, tap);
        const float* const from = weights + tap * s.filters + filter;
        for (unsigned v = 0; v < kPack; ++v) sums.values[v] += seen * from[v];
      }
      for (unsigned v = 0; v < kPack; ++v) {
        const float sum = sums.values[v] + start.values[v];
        sums.values[v] = a.relu && sum < 0 ? 0.0f : sum;
      }
      store(narrowed<T>(sums), y + line * s.filters + filter, aligned);
    }
  }
}

inline constexpr unsigned kThinWidth = 4;

template <class T>
struct ThinLine {
  Pack<float, kThinWidth> g;
  float seen[kThinTaps];
};

template <class T>
struct ThinAdder {
  const ThinGradients& a;
  std::size_t filter;
  bool aligned;
  __device__ ThinLine<T> read(std::size_t line) const {
    const ThinSizes& s = a.sizes;
    const std::size_t at = line * s.filters + filter;
    ThinLine<T> result;
    result.g = widened(load<kThinWidth>(static_cast<const T*>(a.dy) + at, aligned));
    if (a.y != nullptr) {
      const auto y = widened(load<kThinWidth>(static_cast<const T*>(a.y) + at, aligned));
      for (unsigned v = 0; v < kThinWidth; ++v)
        if (!(y.values[v] > 0)) result.g.values[v] = 0;
    }
    const ThinCorner corner(s, line);
    const unsigned taps = s.taps();
    repeat<kThinTaps>([&](unsigned k) {
      const unsigned tap = a.first_tap + k;
      result.seen[k] = tap < taps ? corner.at(s, static_cast<const T*>(a.x), tap) : 0.0f;
    });
    return result;
  }
  template <std::size_t kLines, class Sums>
  __device__ void add(std::size_t, std::size_t, const ThinLine<T> (&lines)[kLines],
                      Sums& sums) const {
    repeat<kLines>([&](unsigned l) {
      for (unsigned v = 0; v < kThinWidth; ++v) {
        const float g = lines[l].g.values[v];
        sums.values[0][v] += g;
        repeat<kThinTaps>([&](unsigned k) { sums.values[k + 1][v] += g * lines[l].seen[k]; });
      }
    });
  }
};

template <class T>
struct ThinEnd {
  const ThinGradients& a;
  struct Nothing {};
  __device__ Nothing fetch(std::size_t) const { return {}; }
  __device__ void put(std::size_t filter, const double (&totals)[kThinTaps + 1], Nothing) const {
    put_gradient(static_cast<T*>(a.db), filter, totals[0], a.accumulate);
    const unsigned taps = a.sizes.taps();
    for (unsigned k = 0; k < kThinTaps && a.first_tap + k < taps; ++k)
      put_gradient(static_cast<T*>(a.dw), filter * taps + a.first_tap + k, totals[k + 1],
                   a.accumulate);
  }
};

template <class T>
__device__ void run(const ThinGradients& a) {
  const ThinSizes& s = a.sizes;
  const std::size_t lines = std::size_t(a.state->examples) * s.output_height * s.output_width;
  sum_lines<kThinWidth, kThinTaps + 1, 1, float>(
      lines, s.filters, a.partials,
      [&](std::size_t filter) {
        return ThinAdder<T>{a, filter, packs_at(a.y, a.dy)};
      },
      ThinEnd<T>{a});
}

}  // namespace lockstep::engine::cuda
