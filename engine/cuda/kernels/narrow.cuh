// SPDX-License-Identifier: MIT
// The kernels of narrow.h. A warp computes 32 filters by all taps of 8 channels; the tensor cores
// sum over 16 positions at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>
#include <matrices.cuh>

#include "engine/cuda/kernels/bands.cuh"
#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/narrow.h"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

// Contiguous pixels of kChannels 16-bit numbers, in pieces of 8 numbers. The order of the pieces
// within 128 bytes depends on their address. The same piece of 8 neighboring pixels thus lies in 8
// different banks.
template <unsigned kChannels>
struct NarrowPixels {
  static constexpr unsigned kPieces = kChannels / kPack, kPieceBytes = 16;
  std::byte* room;

  __device__ std::byte* at(unsigned pixel, unsigned piece) const {
    const unsigned turn = pixel * kPieces / 8 % kPieces;
    return room + (pixel * kPieces + (piece ^ turn)) * kPieceBytes;
  }
  // Starts to copy a piece, or zeroes it.
  template <class T>
  __device__ void put(unsigned pixel, unsigned piece, const T* from, bool there) const {
    struct alignas(kPieceBytes) Piece {
      std::uint32_t words[4];
    };
    std::byte* const to = at(pixel, piece);
    if (there)
      copy_async(to, from);
    else
      *reinterpret_cast<Piece*>(to) = Piece{};
  }
};

// Holds a band in one half of the block's shared memory.
template <unsigned kFilters>
struct NarrowHalf {
  NarrowPixels<kNarrowChannels> x;
  NarrowPixels<kFilters> dy;
  __device__ NarrowHalf(const NarrowSizes& s, unsigned which)
      : x{window() + which * s.band_bytes()}, dy{x.room + s.pixel_bytes()} {}

  // Starts to copy a band, with zeros outside the image and after the last output. All threads of
  // the block call it.
  template <class T>
  __device__ void copy(const NarrowGradient& a, const OutputBand& band) const {
    const NarrowSizes& s = a.sizes;
    constexpr unsigned kPieces = decltype(x)::kPieces, kOutputPieces = decltype(dy)::kPieces;
    const unsigned pitch = s.pitch(), warps = threads() / kWarp;
    const T* const image =
        static_cast<const T*>(a.x) + band.image * s.height * s.width * kNarrowChannels;
    for (unsigned row = thread() / kWarp; row < s.rows(); row += warps) {
      const unsigned of_image = band.row + row - s.padding;  // wraps above and left of the image
      for (unsigned i = lane(); i < pitch * kPieces; i += kWarp) {
        const unsigned pixel = i / kPieces, piece = i % kPieces, column = pixel - s.padding;
        const std::size_t from = std::size_t(of_image) * s.width + column;
        x.put(row * pitch + pixel, piece, image + from * kNarrowChannels + piece * kPack,
              of_image < s.height && column < s.width);
      }
    }
    const T* const outputs = static_cast<const T*>(a.dy) + band.line * kFilters;
    for (unsigned i = thread(); i < s.positions() * kOutputPieces; i += threads())
      dy.put(i / kOutputPieces, i % kOutputPieces, outputs + std::size_t(i) * kPack,
             i / kOutputPieces < band.positions);
  }
};

// Computes the sums of one warp.
template <class T, unsigned kFilters>
class NarrowTile {
 public:
  static constexpr unsigned kGroups = kNarrowChannels / 8;

  __device__ explicit NarrowTile(const NarrowSizes& s)
      : group_(thread() / kWarp % kGroups), half_(thread() / kWarp / kGroups) {
    // Each load covers two taps; the last one covers its tap twice.
    repeat<kLoads>([&](unsigned i) {
      const unsigned tap = 2 * i + lane() / 16 < kNarrowTaps ? 2 * i + lane() / 16 : 2 * i;
      offsets_[i] = tap / kNarrowKernel * s.pitch() + tap % kNarrowKernel;
    });
  }

  // Adds the products of a band. Multiplies 16 positions while it loads the next ones.
  __device__ void add(const NarrowSizes& s, const NarrowHalf<kFilters>& band, unsigned positions) {
    // In the rows of this lane (`load_transposed`), `low` selects filters and `high` positions for
    // dy. For x, `low` selects positions and `high` taps.
    const unsigned row = lane() % 8, low = lane() / 8 % 2, high = lane() / 16;
    unsigned y = 0, x = row + 8 * low;
    const auto load = [&](unsigned first, Loaded& to) {
      for (; x >= s.output_width; x -= s.output_width) ++y;
      // Beyond the band gradients are zero, so any pixel will do.
      const unsigned pixel = first + row + 8 * low < positions ? y * s.pitch() + x : 0;
      x += 16;
      repeat<2>([&](unsigned m) {
        load_transposed(to.dy[m], band.dy.at(first + row + 8 * high, 4 * half_ + 2 * m + low));
      });
      repeat<kLoads>(
          [&](unsigned i) { load_transposed(to.x[i], band.x.at(pixel + offsets_[i], group_)); });
    };
    Loaded loaded[2];
    load(0, loaded[0]);
    for (unsigned first = 0; first < positions; first += 32) {
      repeat<2>([&](unsigned which) {
        const unsigned here = first + 16 * which;
        if (here + 16 < positions) load(here + 16, loaded[1 - which]);
        if (here < positions) multiply(loaded[which]);
      });
    }
  }

  __device__ void write(const NarrowSizes& s, float* sums) const {
    const unsigned column = lane() % 4 * 2;
    repeat<4>([&](unsigned i) {
      const unsigned filter = 32 * half_ + 8 * i + lane() / 4;
      float* const to = sums + filter * kNarrowTaps * kNarrowChannels + group_ * 8 + column;
      const auto pair = [&](unsigned tap) {
        return Pack<float, 2>{sums_[i / 2][tap][2 * (i % 2)], sums_[i / 2][tap][2 * (i % 2) + 1]};
      };
      repeat<kNarrowTaps>(
          [&](unsigned tap) { store(pair(tap), to + tap * kNarrowChannels, true); });
      if (group_ == 0 && column == 0) sums[s.weights() + filter] = pair(kNarrowTaps).values[0];
    });
  }

 private:
  static constexpr unsigned kLoads = (kNarrowTaps + 1) / 2;
  struct Loaded {
    std::uint32_t dy[2][4], x[kLoads][4];
  };

  __device__ void multiply(const Loaded& by) {
    repeat<2>([&](unsigned m) {
      repeat<kNarrowTaps>([&](unsigned tap) {
        const std::uint32_t(&x)[4] = by.x[tap / 2];
        multiply_add<T>(sums_[m][tap], by.dy[m], {x[tap % 2 * 2], x[tap % 2 * 2 + 1]});
      });
      const std::uint32_t one = std::bit_cast<std::uint32_t>(narrowed<T>(Pack<float, 2>{1, 1}));
      if (group_ == 0) multiply_add<T>(sums_[m][kNarrowTaps], by.dy[m], {one, one});
    });
  }

  unsigned group_, half_;
  unsigned offsets_[kLoads];
  // The dimensions are halves of 16 filters, taps and finally the bias, and numbers of a lane.
  float sums_[2][kNarrowTaps + 1][4] = {};
};

template <class T, unsigned kFilters>
__device__ void narrow_gradient(const NarrowGradient& a) {
  using Half = NarrowHalf<kFilters>;
  const NarrowSizes& s = a.sizes;
  const std::size_t bands = std::size_t(a.state->examples) * s.bands();
  for (unsigned chunk = block(); chunk < a.chunks; chunk += blocks()) {
    NarrowTile<T, kFilters> tile(s);
    unsigned which = 0;
    if (chunk < bands) Half(s, 0).template copy<T>(a, OutputBand(s, chunk));
    commit_copies();
    for (std::size_t number = chunk; number < bands; number += a.chunks, which ^= 1) {
      const std::size_t next = number + a.chunks;
      if (next < bands) Half(s, which ^ 1).template copy<T>(a, OutputBand(s, next));
      commit_copies();
      wait_for_copies<1>();
      barrier();
      tile.add(s, Half(s, which), OutputBand(s, number).positions);
      barrier();
    }
    tile.write(s, a.sums + std::size_t(chunk) * s.sums());
  }
}

template <class T>
__device__ void run(const NarrowGradient& a) {
  if constexpr (sizeof(T) == 2) {
    if (a.sizes.filters == 64) return narrow_gradient<T, 64>(a);
    narrow_gradient<T, 32>(a);
  }
}

// Adds the sums of the chunks. Each warp takes every kWarps-th chunk, and each lane four sums.
template <class T>
__device__ void run(const NarrowGradientEnd& a) {
  constexpr unsigned kWarps = kNarrowEndThreads / kWarp, kMine = kNarrowEndValues / kWarp;
  constexpr unsigned kAtOnce = 8;  // loads that overlap
  using Values = Pack<float, kMine>;
  Values* const of_warps = shared<Values, kNarrowEndThreads>();
  const unsigned count = a.sizes.sums(), first = block() * kNarrowEndValues + lane() * kMine;
  Values sum{};
  for (unsigned chunk = thread() / kWarp; chunk < a.chunks && first < count;
       chunk += kAtOnce * kWarps) {
    Values more[kAtOnce] = {};
    repeat<kAtOnce>([&](unsigned k) {
      const std::size_t at = chunk + k * kWarps;
      if (at < a.chunks) more[k] = load<kMine>(a.sums + at * count + first, true);
    });
    repeat<kAtOnce>([&](unsigned k) {
      repeat<kMine>([&](unsigned v) { sum.values[v] += more[k].values[v]; });
    });
  }
  of_warps[thread()] = sum;
  barrier();
  const unsigned at = block() * kNarrowEndValues + thread();
  if (thread() >= kNarrowEndValues || at >= count) return;
  double total = 0;
  for (unsigned k = 0; k < kWarps; ++k)
    total += double(of_warps[k * kWarp + thread() / kMine].values[thread() % kMine]);
  const unsigned weights = a.sizes.weights();
  if (at < weights)
    put_gradient(static_cast<T*>(a.dw), at, total, a.accumulate);
  else
    put_gradient(static_cast<T*>(a.db), at - weights, total, a.accumulate);
}

}  // namespace lockstep::engine::cuda
