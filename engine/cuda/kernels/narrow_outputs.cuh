// SPDX-License-Identifier: MIT
// The kernel of narrow_outputs.h. A warpgroup takes every kGroups-th tile of 64 positions by all
// outputs, and sums over taps and channels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>
#include <group_matrices.cuh>
#include <limits>
#include <matrices.cuh>
#include <numbers.cuh>
#include <store.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/lines.h"
#include "engine/cuda/kernels/narrow_outputs.h"
#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/planes.cuh"

namespace lockstep::engine::cuda {

// Holds the weights and the band in a block's shared memory.
template <class T, unsigned kChannels, unsigned kOutputs, bool kTurned>
class NarrowView {
 public:
  using Images = Planes<T, kChannels, kNarrowOutputThreads>;
  using Sums = float[kOutputs / 2];
  struct Band {
    unsigned image = 0, row = 0;  // image and row of the first output
  };
  static constexpr unsigned kFilters = kTurned ? kChannels : kOutputs;
  static constexpr unsigned kWeightPieces =
      kNarrowTaps * (kTurned ? kOutputs : kChannels) / kPack;             // per filter
  static constexpr unsigned kOfFilter = kNarrowOutputThreads / kFilters;  // threads
  static constexpr unsigned kWeightLoads = (kWeightPieces + kOfFilter - 1) / kOfFilter;
  using Weights = Piece[kWeightLoads];  // those of a thread

  __device__ explicit NarrowView(const NarrowOutputSizes& s)
      : sizes_(s),
        pitch_(s.pitch()),
        plane_(s.plane()),
        weight_plane_(s.weight_plane(kTurned)),
        memory_(window()),
        weights_(memory_ + kPieces * plane_),
        images_(memory_, {s.height, s.width, s.pitch(), s.padding, s.rows(), s.rows() * s.pitch(),
                          s.plane()}) {}

  __device__ Band band(unsigned number) const {
    const unsigned bands = sizes_.bands(), image = number / bands;
    return {image, (number - image * bands) * sizes_.band};
  }

  // All threads of the block call these functions.
  __device__ void fetch_weights(const T* from, Weights& to) const {
    repeat<kWeightLoads>([&](unsigned k) {
      const unsigned piece = thread() % kOfFilter + k * kOfFilter;
      if (piece < kWeightPieces)
        to[k] = read_wide(reinterpret_cast<const Piece*>(from) +
                          thread() / kOfFilter * kWeightPieces + piece);
    });
  }
  __device__ void put_weights(const Weights& pieces) const {
    const unsigned column = column_of(thread() / kOfFilter);
    repeat<kWeightLoads>([&](unsigned k) {
      const unsigned piece = thread() % kOfFilter + k * kOfFilter;
      if (piece < kWeightPieces)
        reinterpret_cast<Piece*>(weights_ + piece * weight_plane_)[column] = pieces[k];
    });
  }
  __device__ void fetch(const T* images, const Band& band, typename Images::Pieces& to) const {
    images_.fetch(images, band.image, int(band.row) - int(sizes_.padding), to);
  }
  __device__ void put(const T* images, const Band& band,
                      const typename Images::Pieces& pieces) const {
    images_.put(images, band.image, int(band.row) - int(sizes_.padding), pieces);
  }

  // Adds the products of a tile over all taps and channels.
  __device__ void multiply(unsigned tile, Sums& sums) const {
    const GroupMatrix seen(memory_ + tile * kNarrowTile * kPieceBytes, plane_, 8 * kPieceBytes);
    const GroupMatrix weights(weights_, kTurned ? 8 * kPieceBytes : weight_plane_,
                              kTurned ? weight_plane_ : 8 * kPieceBytes);
    fence_sums(sums);
    begin_products();
    repeat<kNarrowTaps>([&](unsigned tap) {
      const unsigned pixel = tap / kNarrowKernel * sizes_.pitch() + tap % kNarrowKernel;
      repeat<kChannels / 16>([&](unsigned step) {
        const unsigned by = kTurned ? (kNarrowTaps - 1 - tap) * (kOutputs / kPack) * weight_plane_ +
                                          step * 16 * kPieceBytes
                                    : (tap * kPieces + 2 * step) * weight_plane_;
        multiply_add<T, kOutputs, false, kTurned>(
            sums, seen.further(pixel * kPieceBytes + 2 * step * plane_), weights.further(by));
      });
    });
    end_products();
    wait_for_products();
    fence_sums(sums);
  }

  // Writes the sums of a tile. `floor`: a pair of lower bounds for the outputs.
  __device__ void write(const Sums& sums, unsigned tile, const Band& band, std::uint32_t floor,
                        T* y) const {
    repeat<2>([&](unsigned half) {
      const auto [row, column] = pitch_.divide(
          tile * kNarrowTile + thread() % kGroupThreads / kWarp * 16 + lane() / 4 + 8 * half);
      const unsigned of_image = band.row + row;
      const bool there =
          column < sizes_.output_width && row < sizes_.band && of_image < sizes_.output_height;
      const std::size_t line = std::size_t(band.image) * sizes_.output_height + of_image;
      T* const to = y + (line * sizes_.output_width + column) * kOutputs + lane() % 4 * kPack;
      repeat<kOutputs / 32>([&](unsigned part) {
        Piece mine;
        repeat<4>([&](unsigned k) {
          const unsigned n = 4 * (4 * part + k) + 2 * half;
          mine.words[k] = at_least<T>(
              std::bit_cast<std::uint32_t>(narrowed<T>(Pack<float, 2>{sums[n], sums[n + 1]})),
              floor);
        });
        if constexpr (kTurned) exchange(mine.words);
        if (there) write_wide(reinterpret_cast<Piece*>(to + 32 * part), mine);
      });
    });
  }

 private:
  static constexpr unsigned kPieces = kChannels / kPack;

  // Returns the column of a filter. A lane has two neighboring columns of each 8. In this order it
  // has filters 8 t to 8 t + 7 of each 32, and writes them as one piece. Rotated weights cannot be
  // reordered, since each of their pieces has 8 columns. Their lanes exchange sums instead.
  __device__ static unsigned column_of(unsigned filter) {
    if constexpr (kTurned) return filter;
    return filter / 32 * 32 + filter % 8 / 2 * 8 + filter % 32 / 8 * 2 + filter % 2;
  }
  // Transposes words among four neighboring lanes: each lane receives the words at its own index.
  __device__ static void exchange(std::uint32_t (&words)[4]) {
    repeat<2>([&](unsigned bit) {
      const unsigned mask = 1 + bit;
      const bool upper = lane() & mask;
      repeat<4>([&](unsigned k) {
        if (k & mask) return;
        const std::uint32_t got = shuffle_xor(upper ? words[k] : words[k | mask], mask);
        (upper ? words[k] : words[k | mask]) = got;
      });
    });
  }

  const NarrowOutputSizes& sizes_;
  Divisor pitch_;
  unsigned plane_, weight_plane_;
  std::byte *memory_, *weights_;
  Images images_;
};

// Computes every blocks()-th band.
template <class T, unsigned kChannels, unsigned kOutputs, bool kTurned>
__device__ void narrow_outputs(const NarrowOutputs& a) {
  using View = NarrowView<T, kChannels, kOutputs, kTurned>;
  constexpr unsigned kGroups = kNarrowOutputThreads / kGroupThreads;
  const View view(a.sizes);
  const auto* const images = static_cast<const T*>(a.x);
  typename View::Band band = view.band(block());
  const std::size_t in_use = a.state->examples;
  // All loads start before the first is awaited. The image of the first band was planned, so it may
  // be read even if it is not in use.
  typename View::Weights weights;
  view.fetch_weights(static_cast<const T*>(a.w), weights);
  typename View::Images::Pieces pieces;
  view.fetch(images, band, pieces);
  Pack<float, kPack> bias[kOutputs / 32] = {};
  if (a.bias != nullptr)
    repeat<kOutputs / 32>([&](unsigned part) {
      const auto* const from = static_cast<const T*>(a.bias) + 32 * part + lane() % 4 * kPack;
      bias[part] = widened(load<kPack>(from, true));
    });
  const unsigned examples = of_first_lane(unsigned(in_use)),
                 group = of_first_lane(thread() / kGroupThreads);
  view.put_weights(weights);
  const float least_value = a.relu ? 0.0f : -std::numeric_limits<float>::infinity();
  const auto floor =
      std::bit_cast<std::uint32_t>(narrowed<T>(Pack<float, 2>{least_value, least_value}));
  for (unsigned number = block(); band.image < examples;) {
    view.put(images, band, pieces);
    show_to_group();
    barrier();
    for (unsigned tile = group; tile < a.sizes.tiles(); tile += kGroups) {
      typename View::Sums sums;
      repeat<kOutputs / 2>(
          [&](unsigned i) { sums[i] = bias[i / 16].values[i % 16 / 4 * 2 + i % 2]; });
      view.multiply(tile, sums);
      view.write(sums, tile, band, floor, static_cast<T*>(a.y));
    }
    number += blocks();
    band = view.band(number);
    if (band.image >= examples) return;
    view.fetch(images, band, pieces);
    barrier();
  }
}

template <class T>
__device__ void run(const NarrowOutputs& a) {
  if constexpr (kHasGroups && sizeof(T) == 2) {
    const unsigned outputs = a.sizes.outputs;
    if (!a.turned && outputs == 64) return narrow_outputs<T, 32, 64, false>(a);
    if (!a.turned) return narrow_outputs<T, 32, 32, false>(a);
    if (a.sizes.channels == 64) return narrow_outputs<T, 64, 32, true>(a);
    narrow_outputs<T, 32, 32, true>(a);
  }
}

}  // namespace lockstep::engine::cuda
