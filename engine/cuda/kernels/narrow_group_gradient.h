// SPDX-License-Identifier: MIT
// Gradients of weights and biases as NarrowGradient has them (engine/cuda/kernels/narrow.h), for 64
// filters, on the matrix units of GPUs of compute capability 9.0. A block works on bands: some rows
// of an image's outputs. Gradients and what their windows see lie in the block's memory as planes
// of 8 channels with rows of one length, so that a tap sees a constant distance away. What windows
// see lies there three times, copies one and two pixels earlier, so that one product is of three
// taps. Chunks and sums are NarrowGradient's, and NarrowGradientEnd adds them.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/narrow.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kNarrowGroupThreads = 256;  // two groups of four warps
inline constexpr unsigned kNarrowGroupFilters = 64;

struct NarrowGroupSizes {
  unsigned height = 0, width = 0;
  unsigned output_height = 0, output_width = 0;
  unsigned padding = 0;
  unsigned band = 0;                                                              // rows of outputs
  constexpr unsigned bands() const { return (output_height + band - 1) / band; }  // of an image
  // Returns the pixels of a row in the block's memory, and the rows that a band sees.
  constexpr unsigned pitch() const { return width + 2 * padding; }
  constexpr unsigned rows() const { return band + kNarrowKernel - 1; }
  // Returns the products of each group: of 16 positions, of which some at the end of rows and
  // behind the last row have no gradient.
  constexpr unsigned steps() const { return (band * pitch() + 31) / 32; }
  constexpr unsigned positions() const { return steps() * 32; }
  constexpr unsigned pixels() const { return positions() + 2 * pitch() + 2; }
  // Returns the bytes of 8 channels of all pixels and of all positions. Planes begin in different
  // banks.
  constexpr unsigned plane() const { return (pixels() * 16 + 95) / 128 * 128 + 32; }
  constexpr unsigned position_plane() const { return (positions() * 16 + 111) / 128 * 128 + 16; }
  constexpr unsigned bytes() const {
    constexpr unsigned kOfGroup = 128 * (kNarrowTaps * 16 + 4) * 4;  // sums at the end
    const unsigned planes = kNarrowKernel * (kNarrowChannels / 8) * plane() +
                            kNarrowGroupFilters / 8 * position_plane() + 256;
    return planes > kOfGroup ? planes : kOfGroup;
  }
};

// Any number of blocks of kNarrowGroupThreads, with sizes.bytes() each. A chunk is every so many-th
// band.
struct NarrowGroupGradient {
  static constexpr const char* kName = "narrow_group_gradient";
  const StepState* state = nullptr;
  NarrowGroupSizes sizes;
  const void *x = nullptr, *dy = nullptr;
  unsigned chunks = 1;
  float* sums = nullptr;  // [chunks][weights, then biases]
};

using NarrowGroupKernels = std::tuple<NarrowGroupGradient>;

}  // namespace lockstep::engine::cuda
