// SPDX-License-Identifier: MIT
// Kernel arguments of the outputs, or gradients of data, of convolutions with 32 channels, 32 or 64
// filters, 3x3 kernels, stride 1 and 16-bit types. They use the tensor cores of GPUs of compute
// capability 9.0. A gradient of data is a convolution of dy with rotated weights. A block works on
// bands, which are some output rows of an image. Shared memory holds their inputs as planes of 8
// channels, in which the input of a tap is at a constant distance. The tensor cores thus read each
// tap's inputs in place. Addresses are GPU addresses, aligned to 16 bytes.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/narrow.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kNarrowOutputThreads = 256;
inline constexpr unsigned kNarrowTile = 64;  // positions multiplied together

struct NarrowOutputSizes {
  unsigned height = 0, width = 0, channels = 0;  // of the input; channels: 32 or 64
  unsigned output_height = 0, output_width = 0, outputs = 0;
  unsigned padding = 0;
  unsigned band = 0;                                                              // output rows
  constexpr unsigned bands() const { return (output_height + band - 1) / band; }  // per image
  // Returns the pixels of a row of the padded image, and the input rows of a band.
  constexpr unsigned pitch() const { return width + 2 * padding; }
  constexpr unsigned rows() const { return band + kNarrowKernel - 1; }
  // Returns the tiles of a band. A row has `pitch` positions, of which the last two are discarded.
  constexpr unsigned tiles() const { return (band * pitch() + kNarrowTile - 1) / kNarrowTile; }
  // Returns the bytes of 8 channels of all inputs of a band's tiles. Planes begin in different
  // banks.
  constexpr unsigned plane() const {
    const unsigned pixels = tiles() * kNarrowTile + 2 * pitch() + 2, spread = 128 / (channels / 8);
    return (pixels * 16 + 127 - spread) / 128 * 128 + spread;
  }
  // Returns the bytes of 8 channels by all filters of the weights of a tap.
  constexpr unsigned weight_plane(bool turned) const {
    return ((turned ? channels : outputs) + 1) * 16;
  }
  constexpr unsigned bytes(bool turned) const {
    const unsigned planes = (turned ? outputs : channels) / 8 * kNarrowTaps;
    return channels / 8 * plane() + planes * weight_plane(turned);
  }
};

// Computes the outputs with blocks of kNarrowOutputThreads and sizes.bytes() each, at most as many
// as x has bands.
struct NarrowOutputs {
  static constexpr const char* kName = "narrow_outputs";
  const StepState* state = nullptr;
  NarrowOutputSizes sizes;
  const void *x = nullptr, *w = nullptr, *bias = nullptr;  // bias null: none
  void* y = nullptr;
  bool turned = false;  // x: gradient of outputs, y: gradient of data
  bool relu = false;
};

using NarrowOutputKernels = std::tuple<NarrowOutputs>;

}  // namespace lockstep::engine::cuda
