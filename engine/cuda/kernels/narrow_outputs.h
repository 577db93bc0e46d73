// SPDX-License-Identifier: MIT
// Outputs, or gradients of data, of convolutions from 32 channels to 32 or 64 filters by kernels of
// 3x3 with stride 1, of 16-bit types, on the matrix units of GPUs of compute capability 9.0. A
// gradient of data is the outputs of a convolution of dy, whose weights are turned. A block works
// on bands: some rows of an image's outputs. What their windows see lies in the block's memory as
// planes of 8 channels, in which the neighbour that a tap sees is a constant distance away; so the
// matrix units read each tap's numbers where they lie. Addresses are the GPU's, aligned to 16
// bytes.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/narrow.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kNarrowOutputThreads = 256;
inline constexpr unsigned kNarrowTile = 64;  // positions multiplied together

struct NarrowOutputSizes {
  unsigned height = 0, width = 0, channels = 0;  // of what is read: 32 or 64 channels
  unsigned output_height = 0, output_width = 0, outputs = 0;
  unsigned padding = 0;
  unsigned band = 0;                                                              // rows of outputs
  constexpr unsigned bands() const { return (output_height + band - 1) / band; }  // of an image
  // Returns the pixels of a row of the padded image, and the rows that a band sees.
  constexpr unsigned pitch() const { return width + 2 * padding; }
  constexpr unsigned rows() const { return band + kNarrowKernel - 1; }
  // Returns the tiles of a band. A row has `pitch` positions, of which the last two are discarded.
  constexpr unsigned tiles() const { return (band * pitch() + kNarrowTile - 1) / kNarrowTile; }
  // Returns the bytes of 8 channels of all that a band's tiles see. Planes begin in different
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

// Blocks of kNarrowOutputThreads with sizes.bytes() each, at most as many as x has bands.
struct NarrowOutputs {
  static constexpr const char* kName = "narrow_outputs";
  const StepState* state = nullptr;
  NarrowOutputSizes sizes;
  const void *x = nullptr, *w = nullptr, *bias = nullptr;  // null bias: none
  void* y = nullptr;
  bool turned = false;  // x is the gradient of a convolution's outputs, y that of its data
  bool relu = false;
};

using NarrowOutputKernels = std::tuple<NarrowOutputs>;

}  // namespace lockstep::engine::cuda
