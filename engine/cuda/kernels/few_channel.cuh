// SPDX-License-Identifier: MIT
// The kernels of few_channel.h. In the forward pass a thread computes kPack filters of a few
// positions at a time. In the backward pass it has four filters of kFewChannelLines positions per
// band, and a sum per tap and one for the bias. No position needs a division or a bounds check.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <grid.cuh>

#include "engine/cuda/kernels/bands.cuh"
#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/few_channel.h"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

// Holds a band in shared memory: its pixels in float32, row by row, zero outside the image, and
// offset tables for taps and positions.
class FewChannelView {
 public:
  // Fills the tables for kTaps taps from `first` on. All threads of the block call it; a barrier
  // must follow.
  template <unsigned kTaps>
  __device__ static FewChannelView of(const FewChannelSizes& s, unsigned first) {
    FewChannelView view(shared<unsigned, kTaps>());
    const unsigned pitch = s.pitch();
    if (thread() < kTaps) {
      const unsigned tap = first + thread(), y = tap / (s.kernel_width * s.channels);
      // Within a row, the tap's offset in the window equals its offset in the image.
      view.taps_[thread()] = tap < s.taps() ? (y * (pitch - s.kernel_width * s.channels) + tap) *
                                                  unsigned(sizeof(float))
                                            : 0;
    }
    for (unsigned i = thread(); i < s.band * s.output_width; i += threads()) {
      const unsigned y = i / s.output_width, x = i - y * s.output_width;
      view.corners_[i] = (y * pitch + x * s.channels) * s.stride * unsigned(sizeof(float));
    }
    return view;
  }

  // Loads a band. All threads of the block call it.
  template <class T>
  __device__ void show(const FewChannelSizes& s, const T* images, const OutputBand& band) {
    constexpr unsigned kAtOnce = 2;  // rows whose loads overlap
    const unsigned pitch = s.pitch(), rows = s.rows(s.band), warps = threads() / kWarp;
    const unsigned numbers = s.width * s.channels, left = s.padding * s.channels;
    const T* const image = images + band.image * s.height * numbers;
    barrier();
    for (unsigned first = thread() / kWarp; first < rows; first += kAtOnce * warps) {
      for (unsigned column = lane(); column < pitch; column += kWarp) {
        const unsigned x = column - left;  // wraps above and left of the image
        float values[kAtOnce];
        repeat<kAtOnce>([&](unsigned k) {
          const unsigned y = band.row * s.stride - s.padding + first + k * warps;
          const bool there = y < s.height && x < numbers && first + k * warps < rows;
          values[k] = there ? wide(image[std::size_t(y) * numbers + x]) : 0.0f;
        });
        repeat<kAtOnce>([&](unsigned k) {
          const unsigned row = first + k * warps;
          if (row < rows) pixels_[row * pitch + column] = values[k];
        });
      }
    }
    barrier();
  }

  // Position p sees the number at(tap(t) + corner(p)) through tap t. Both offsets are in bytes.
  __device__ unsigned tap(unsigned number) const { return taps_[number]; }
  __device__ unsigned corner(unsigned position) const { return corners_[position]; }
  __device__ float at(unsigned place) const {
    return *reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(pixels_) + place);
  }

 private:
  __device__ explicit FewChannelView(unsigned* taps)
      : taps_(taps),
        corners_(shared<unsigned, kMostFewChannelOutputs>()),
        pixels_(shared<float, kMostFewChannelPixels>()) {}
  unsigned *taps_, *corners_;
  float* pixels_;
};

template <class T>
__device__ void run(const FewChannelForward& a) {
  constexpr unsigned kAtOnce = 3;  // positions per load of weights
  using Filters = Pack<float, kPack>;
  const FewChannelSizes& s = a.sizes;
  const unsigned taps = s.taps(), groups = s.filters / kPack;
  const T* const w = static_cast<const T*>(a.w);
  const T* const bias = static_cast<const T*>(a.bias);
  T* const y = static_cast<T*>(a.y);
  // The layout is [taps][groups].
  Filters* const weights = shared<Filters, kMostFewChannelTaps * kMostFewChannelFilters / kPack>();
  for (unsigned i = thread(); i < taps * s.filters; i += threads()) {
    const unsigned tap = i / s.filters;
    weights[i / kPack].values[i % kPack] = wide(w[(i - tap * s.filters) * taps + tap]);
  }
  FewChannelView view = FewChannelView::of<kMostFewChannelTaps>(s, 0);
  const Threads<kPack> mine(s.filters);
  const unsigned filter = mine.group * kPack;
  const bool works = mine.works(0);
  Filters start{};
  for (unsigned v = 0; v < kPack && bias != nullptr && works; ++v)
    start.values[v] = wide(bias[filter + v]);
  const std::size_t bands = std::size_t(a.state->examples) * s.bands();
  const std::size_t step = std::size_t(blocks()) * block_rows();
  for (std::size_t at = std::size_t(block_row()) * blocks() + block(); at < bands; at += step) {
    const OutputBand band(s, at);
    view.show(s, static_cast<const T*>(a.x), band);
    for (unsigned first = works ? mine.slot : band.positions; first < band.positions;
         first += kAtOnce * mine.slots) {
      const auto there = [&](unsigned k) { return first + k * mine.slots < band.positions; };
      unsigned corners[kAtOnce];
      repeat<kAtOnce>(
          [&](unsigned k) { corners[k] = view.corner(there(k) ? first + k * mine.slots : first); });
      Filters sums[kAtOnce] = {};
      for (unsigned tap = 0; tap < taps; ++tap) {
        const Filters by = weights[tap * groups + mine.group];
        const unsigned offset = view.tap(tap);
        repeat<kAtOnce>([&](unsigned k) {
          const float seen = view.at(offset + corners[k]);
          for (unsigned v = 0; v < kPack; ++v) sums[k].values[v] += seen * by.values[v];
        });
      }
      repeat<kAtOnce>([&](unsigned k) {
        if (!there(k)) return;
        for (unsigned v = 0; v < kPack; ++v) {
          const float sum = sums[k].values[v] + start.values[v];
          sums[k].values[v] = a.relu && sum < 0 ? 0.0f : sum;
        }
        const std::size_t line = band.line + first + k * mine.slots;
        store(narrowed<T>(sums[k]), y + line * s.filters + filter, true);
      });
    }
  }
}

// Holds a thread's outputs of a band. All loads are issued before the first output is used. The
// outputs stay in words, since compilers unpack packs of narrow values on arrival and thus wait.
template <class T>
class FewChannelOutputs {
 public:
  static constexpr unsigned kSlots = kLineThreads / kSumGroups;
  using Sums = ChannelSums<kFewChannelTaps + 1, kFewChannelWidth, float>;

  __device__ void read(const FewChannelGradients& a, const OutputBand& band, unsigned slot,
                       std::size_t filter) {
    slot_ = slot;
    end_ = band.positions;
    masks_ = a.y != nullptr;
    const auto* const dy = static_cast<const T*>(a.dy) + band.line * a.sizes.filters + filter;
    const auto* const y =
        masks_ ? static_cast<const T*>(a.y) + band.line * a.sizes.filters + filter : dy;
    repeat<kFewChannelLines>([&](unsigned k) {
      const std::size_t at = least(slot + k * kSlots, end_ - 1) * a.sizes.filters;
      dy_[k] = load<kWords>(reinterpret_cast<const std::uint32_t*>(dy + at), true);
      y_[k] = load<kWords>(reinterpret_cast<const std::uint32_t*>(y + at), true);
    });
  }
  __device__ void add(const FewChannelView& view, Sums& sums) const {
    unsigned taps[kFewChannelTaps];
    repeat<kFewChannelTaps>([&](unsigned t) { taps[t] = view.tap(t); });
    repeat<kFewChannelLines>([&](unsigned k) {
      if (slot_ + k * kSlots >= end_) return;
      const unsigned corner = view.corner(slot_ + k * kSlots);
      auto g = widened(std::bit_cast<Pack<T, kFewChannelWidth>>(dy_[k]));
      const auto y = widened(std::bit_cast<Pack<T, kFewChannelWidth>>(y_[k]));
      for (unsigned v = 0; v < kFewChannelWidth; ++v) {
        if (masks_ && !(y.values[v] > 0)) g.values[v] = 0;
        sums.values[0][v] += g.values[v];
      }
      repeat<kFewChannelTaps>([&](unsigned t) {
        const float seen = view.at(taps[t] + corner);
        for (unsigned v = 0; v < kFewChannelWidth; ++v) sums.values[t + 1][v] += g.values[v] * seen;
      });
    });
  }

 private:
  static constexpr unsigned kWords = kFewChannelWidth * sizeof(T) / sizeof(std::uint32_t);
  Pack<std::uint32_t, kWords> y_[kFewChannelLines], dy_[kFewChannelLines];
  unsigned slot_, end_;
  bool masks_;
};

template <class T>
struct FewChannelEnd {
  const FewChannelGradients& a;
  struct Nothing {};
  __device__ Nothing fetch(std::size_t) const { return {}; }
  __device__ void put(std::size_t filter, const double (&totals)[kFewChannelTaps + 1],
                      Nothing) const {
    put_gradient(static_cast<T*>(a.db), filter, totals[0], a.accumulate);
    const unsigned taps = a.sizes.taps();
    for (unsigned k = 0; k < kFewChannelTaps && a.first_tap + k < taps; ++k)
      put_gradient(static_cast<T*>(a.dw), filter * taps + a.first_tap + k, totals[k + 1],
                   a.accumulate);
  }
};

// Each chunk takes every `chunks`-th band, from the last to the first, like sum_lines.
template <class T>
__device__ void run(const FewChannelGradients& a) {
  const FewChannelSizes& s = a.sizes;
  const Threads<kFewChannelWidth> mine(s.filters, kSumGroups);
  const std::size_t bands = std::size_t(a.state->examples) * s.bands();
  const unsigned chunks = a.partials.chunks;
  const FewChannelEnd<T> end{a};
  FewChannelView view = FewChannelView::of<kFewChannelTaps>(s, a.first_tap);
  for (std::size_t tile = block(); tile < mine.tiles(); tile += blocks()) {
    const TileSums<kFewChannelWidth, kFewChannelTaps + 1, kSumGroups, FewChannelEnd<T>> tile_sums(
        a.partials, s.filters, tile, end);
    for (unsigned chunk = block_row(); chunk < chunks; chunk += block_rows()) {
      typename FewChannelOutputs<T>::Sums sums;
      for (std::size_t at = chunk; at < bands; at += chunks) {
        const OutputBand band(s, bands - 1 - at);
        FewChannelOutputs<T> outputs;
        if (mine.works(tile)) outputs.read(a, band, mine.slot, mine.channel(tile));
        view.show(s, static_cast<const T*>(a.x), band);
        if (mine.works(tile)) outputs.add(view, sums);
      }
      tile_sums.add_threads(chunk, sums);
      tile_sums.add_chunks();
    }
  }
}

}  // namespace lockstep::engine::cuda
