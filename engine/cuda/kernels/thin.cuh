// SPDX-License-Identifier: MIT
// Bodies of the kernels in thin.h. Forward a thread has kPack filters of some positions, and
// weights lie in float32 where all threads of its block reach them. Backward it has four filters,
// and a sum for each of the taps and one for the bias.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/thin.h"

namespace lockstep::engine::cuda {

// A number that kernels see: its row and column in the window, and how far it lies behind the
// window's first one.
struct ThinTap {
  unsigned y = 0, x = 0, offset = 0;
};

// Fills the table with kCount taps from `first` on. All threads of the block call it; a barrier
// must follow. The table saves divisions for each position.
template <unsigned kCount>
__device__ void find_taps(const ThinSizes& s, unsigned first, ThinTap* taps) {
  if (thread() >= kCount || first + thread() >= s.taps()) return;
  const unsigned tap = first + thread(), pixel = tap / s.channels;
  const unsigned y = pixel / s.kernel_width, x = pixel - y * s.kernel_width;
  taps[thread()] = {y, x, (y * s.width + x) * s.channels + tap - pixel * s.channels};
}

// The window of one position. Its upper left corner wraps where it is above or left of
// the image.
template <class T>
struct ThinCorner {
  const T* first;
  unsigned y, x;
  __device__ ThinCorner(const ThinSizes& s, const T* images, std::size_t line) {
    const auto [lines, ox] = divide(line, s.output_width);
    const auto [row, oy] = divide(lines, s.output_height);
    y = unsigned(oy) * s.stride - s.padding;
    x = unsigned(ox) * s.stride - s.padding;
    first = images + ((std::int64_t(row) * s.height + int(y)) * s.width + int(x)) * s.channels;
  }
  // Returns the number that a tap sees, zero beyond the image.
  __device__ float at(const ThinSizes& s, const ThinTap& tap) const {
    return y + tap.y < s.height && x + tap.x < s.width ? wide(first[tap.offset]) : 0.0f;
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
  ThinTap* const table = shared<ThinTap, kMostThinTaps>();
  find_taps<kMostThinTaps>(s, 0, table);
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
      const ThinCorner<T> corner(s, x, line);
      Pack<float, kPack> sums{};
      for (unsigned tap = 0; tap < taps; ++tap) {
        const float seen = corner.at(s, table[tap]);
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

template <class T>
struct ThinLine {
  Pack<float, kThinWidth> g;
  float seen[kThinTaps];
};

template <class T>
struct ThinAdder {
  const ThinGradients& a;
  const ThinTap* taps;
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
    const ThinCorner<T> corner(s, static_cast<const T*>(a.x), line);
    const unsigned count = s.taps() - a.first_tap;
    repeat<kThinTaps>(
        [&](unsigned k) { result.seen[k] = k < count ? corner.at(s, taps[k]) : 0.0f; });
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
  ThinTap* const taps = shared<ThinTap, kThinTaps>();
  find_taps<kThinTaps>(s, a.first_tap, taps);
  barrier();
  sum_lines<kThinWidth, kThinTaps + 1, 1, float>(
      lines, s.filters, a.partials,
      [&](std::size_t filter) {
        return ThinAdder<T>{a, taps, filter, packs_at(a.y, a.dy)};
      },
      ThinEnd<T>{a});
}

}  // namespace lockstep::engine::cuda
