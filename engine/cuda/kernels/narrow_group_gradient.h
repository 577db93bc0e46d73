// SPDX-License-Identifier: MIT
// Kernel arguments of the gradients of NarrowGradient (engine/cuda/kernels/narrow.h), for 64
// filters on the tensor cores of GPUs of compute capability 9.0. A block works on bands, which are
// some output rows of an image. Shared memory holds gradients and inputs as planes of 8 channels
// with rows of one length, so a tap's input is at a constant distance. The inputs are stored three
// times, with copies shifted by one and two pixels, so one product covers three taps. Chunks and
// sums are those of NarrowGradient, and NarrowGradientEnd adds them.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/narrow.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kNarrowGroupThreads = 256;  // two warpgroups
inline constexpr unsigned kNarrowGroupFilters = 64;

struct NarrowGroupSizes {
  unsigned height = 0, width = 0;
  unsigned output_height = 0, output_width = 0;
  unsigned padding = 0;
  unsigned band = 0;                                                              // output rows
  constexpr unsigned bands() const { return (output_height + band - 1) / band; }  // per image
  // Returns the pixels of a row in shared memory, and the input rows of a band.
  constexpr unsigned pitch() const { return width + 2 * padding; }
  constexpr unsigned rows() const { return band + kNarrowKernel - 1; }
  // Returns the products per warpgroup, of 16 positions each. Some positions at the end of rows and
  // after the last row have no gradient.
  constexpr unsigned steps() const { return (band * pitch() + 31) / 32; }
  constexpr unsigned positions() const { return steps() * 32; }
  constexpr unsigned pixels() const { return positions() + 2 * pitch() + 2; }
  // Returns the bytes of 8 channels of all pixels, and of all positions. Planes begin in different
  // banks.
  constexpr unsigned plane() const { return (pixels() * 16 + 95) / 128 * 128 + 32; }
  constexpr unsigned position_plane() const { return (positions() * 16 + 111) / 128 * 128 + 16; }
  constexpr unsigned bytes() const {
    constexpr unsigned kOfGroup = 128 * (kNarrowTaps * 16 + 4) * 4;  // final sums
    const unsigned planes = kNarrowKernel * (kNarrowChannels / 8) * plane() +
                            kNarrowGroupFilters / 8 * position_plane() + 256;
    return planes > kOfGroup ? planes : kOfGroup;
  }
};

// Computes the sums of chunks. Any number of blocks of kNarrowGroupThreads, with sizes.bytes()
// each. A chunk takes every `chunks`-th band.
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
