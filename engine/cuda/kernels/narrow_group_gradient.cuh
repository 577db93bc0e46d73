// SPDX-License-Identifier: MIT
// The kernel of narrow_group_gradient.h. Each warpgroup takes every second 16 positions. It
// multiplies their gradients of all filters by the inputs of each tap.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>
#include <group_matrices.cuh>
#include <matrices.cuh>
#include <numbers.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/narrow_group_gradient.h"
#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/planes.cuh"

namespace lockstep::engine::cuda {

// Holds the sums of a thread: those of the taps, side by side per window row, and those of biases.
struct NarrowGroupSums {
  static constexpr unsigned kColumns = kNarrowKernel * kNarrowChannels;
  static constexpr unsigned kOfRow = kColumns / 2, kOfBias = 4;
  float rows[kNarrowKernel][kOfRow] = {};
  float bias[kOfBias] = {};

  __device__ void fence_all() {
    repeat<kNarrowKernel>([&](unsigned row) { fence_sums(rows[row]); });
    fence_sums(bias);
  }
  // Calls visit(i, sum) for i from 0 on.
  template <class Visit>
  __device__ void each(Visit visit) {
    repeat<kNarrowKernel>([&](unsigned row) {
      repeat<kOfRow>([&](unsigned i) { visit(row * kOfRow + i, rows[row][i]); });
    });
    repeat<kOfBias>([&](unsigned i) { visit(kNarrowKernel * kOfRow + i, bias[i]); });
  }
  __device__ void write(float* to) const {
    constexpr unsigned kOfFilter = kNarrowKernel * kColumns;
    const unsigned column = lane() % 4 * 2;
    repeat<2>([&](unsigned half) {
      const unsigned filter = thread() % kGroupThreads / kWarp * 16 + lane() / 4 + 8 * half;
      repeat<kNarrowKernel>([&](unsigned row) {
        repeat<kColumns / 8>([&](unsigned part) {
          const float* const pair = rows[row] + 4 * part + 2 * half;
          store(Pack<float, 2>{pair[0], pair[1]},
                to + filter * kOfFilter + row * kColumns + 8 * part + column, true);
        });
      });
      if (column == 0) to[kNarrowGroupFilters * kOfFilter + filter] = bias[2 * half];
    });
  }
};

template <class T>
__device__ void narrow_group_gradient(const NarrowGroupGradient& a) {
  const NarrowGroupSizes& s = a.sizes;
  const auto* const x = static_cast<const T*>(a.x);
  const auto* const dy = static_cast<const T*>(a.dy);
  std::byte* const of_outputs = window() + kNarrowKernel * (kNarrowChannels / kPack) * s.plane();
  std::byte* const ones = of_outputs + kNarrowGroupFilters / kPack * s.position_plane();
  const Planes<T, kNarrowChannels, kNarrowGroupThreads, kNarrowKernel> images(
      window(), {s.height, s.width, s.pitch(), s.padding, s.rows(), s.pixels(), s.plane()});
  const Planes<T, kNarrowGroupFilters, kNarrowGroupThreads> outputs(
      of_outputs,
      {s.output_height, s.output_width, s.pitch(), 0, s.band, s.positions(), s.position_plane()});
  const unsigned group = of_first_lane(thread() / kGroupThreads);
  const unsigned first = group * 16 * kPieceBytes;
  const GroupMatrix seen = GroupMatrix(window(), 8 * kPieceBytes, s.plane()).further(first);
  const GroupMatrix gradients =
      GroupMatrix(of_outputs, 8 * kPieceBytes, s.position_plane()).further(first);
  const GroupMatrix all_ones(ones, 8 * kPieceBytes, 8 * kPieceBytes);
  const auto bands = unsigned(a.state->examples) * s.bands();
  for (unsigned chunk = block(); chunk < a.chunks; chunk += blocks()) {
    NarrowGroupSums sums;
    for (unsigned number = chunk; number < bands; number += a.chunks) {
      const unsigned image = number / s.bands(), row = (number - image * s.bands()) * s.band;
      const int above = int(row) - int(s.padding);
      typename decltype(images)::Pieces of_image;
      typename decltype(outputs)::Pieces of_output;
      images.fetch(x, image, above, of_image);
      outputs.fetch(dy, image, int(row), of_output);
      images.put(x, image, above, of_image);
      outputs.put(dy, image, int(row), of_output);
      const std::uint32_t one = std::bit_cast<std::uint32_t>(narrowed<T>(Pack<float, 2>{1, 1}));
      if (thread() < 16) reinterpret_cast<Piece*>(ones)[thread()] = Piece{{one, one, one, one}};
      show_to_group();
      barrier();
      sums.fence_all();
      for (unsigned step = 0; step < s.steps(); ++step) {
        const unsigned at = step * 32 * kPieceBytes;
        const GroupMatrix by = gradients.further(at);
        begin_products();
        repeat<kNarrowKernel>([&](unsigned y) {
          multiply_add<T, NarrowGroupSums::kColumns, true, true>(
              sums.rows[y], by, seen.further(at + y * s.pitch() * kPieceBytes));
        });
        multiply_add<T, 8, true, true>(sums.bias, by, all_ones);
        end_products();
      }
      wait_for_products();
      sums.fence_all();
      barrier();
    }
    // Adds the sums of the second warpgroup to those of the first.
    auto* const others = reinterpret_cast<float*>(window()) + thread() % kGroupThreads;
    if (group == 1) sums.each([&](unsigned i, float sum) { others[i * kGroupThreads] = sum; });
    barrier();
    if (group == 0) {
      sums.each([&](unsigned i, float& sum) { sum += others[i * kGroupThreads]; });
      sums.write(a.sums + std::size_t(chunk) * (kNarrowGroupFilters *
                                                (kNarrowKernel * NarrowGroupSums::kColumns + 1)));
    }
    barrier();
  }
}

template <class T>
__device__ void run(const NarrowGroupGradient& a) {
  if constexpr (kHasGroups && sizeof(T) == 2) narrow_group_gradient<T>(a);
}

}  // namespace lockstep::engine::cuda
