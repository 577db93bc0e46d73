// SPDX-License-Identifier: MIT
// Gradients of weights and biases of convolutions of 32 channels to 32 or 64 filters by kernels of
// 3x3 with stride 1, of 16-bit types, on the matrix units. For small images libraries have no
// kernel for these that fills a GPU. A block works on bands: some rows of an image's outputs. Their
// gradients and what their windows see lie in the block's memory, twice: while one band is added
// the next one arrives. Addresses are the GPU's; x and dy are aligned to 16 bytes; sums are
// float32, and float64 over chunks, whose number follows from the sizes alone.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kNarrowChannels = 32, kNarrowKernel = 3;
inline constexpr unsigned kNarrowTaps = kNarrowKernel * kNarrowKernel;
inline constexpr unsigned kMostNarrowThreads = 256;     // of a block that adds
inline constexpr unsigned kMostNarrowBytes = 96 << 10;  // of memory that it shares
inline constexpr unsigned kMostNarrowChunks = 128;
// The memory that a block shares at most on GPUs of compute capability 9.0.
inline constexpr unsigned kMostPlaneBytes = 227 << 10;
inline constexpr unsigned kNarrowEndThreads = 256;
inline constexpr unsigned kNarrowEndValues = 128;  // sums that a block adds at last

struct NarrowSizes {
  unsigned height = 0, width = 0;
  unsigned output_height = 0, output_width = 0, filters = 0;
  unsigned padding = 0;
  unsigned band = 0;                                                              // rows of outputs
  constexpr unsigned bands() const { return (output_height + band - 1) / band; }  // of an image
  // Returns the pixels of a row of the padded image, and the rows that a band sees.
  constexpr unsigned pitch() const { return width + 2 * padding; }
  constexpr unsigned rows() const { return band + kNarrowKernel - 1; }
  // Returns the outputs of a band, to whole steps of the matrix units.
  constexpr unsigned positions() const { return (band * output_width + 15) / 16 * 16; }
  // Returns the bytes that a block shares for what windows see, and for a band in all.
  constexpr unsigned pixel_bytes() const { return rows() * pitch() * kNarrowChannels * 2; }
  constexpr unsigned band_bytes() const { return pixel_bytes() + positions() * filters * 2; }
  // Returns the sums of a chunk: those of weights as they lie in memory, then those of biases.
  constexpr unsigned weights() const { return filters * kNarrowTaps * kNarrowChannels; }
  constexpr unsigned sums() const { return weights() + filters; }
  // Returns the threads of a block that adds: a warp has 8 channels and 32 filters.
  constexpr unsigned threads() const { return filters / 32 * kNarrowChannels / 8 * 32; }
};

// Any number of blocks, with 2 band_bytes() each beside their own arrays. A chunk is every so
// many-th band.
struct NarrowGradient {
  static constexpr const char* kName = "narrow_gradient";
  const StepState* state = nullptr;
  NarrowSizes sizes;
  const void *x = nullptr, *dy = nullptr;
  unsigned chunks = 1;
  float* sums = nullptr;  // [chunks][sums()]
};

// dw and db, or what is added to them. db null: not wanted. A block has kNarrowEndValues sums.
struct NarrowGradientEnd {
  static constexpr const char* kName = "narrow_gradient_end";
  NarrowSizes sizes;
  unsigned chunks = 1;
  const float* sums = nullptr;
  void *dw = nullptr, *db = nullptr;
  bool accumulate = false;
};

using NarrowKernels = std::tuple<NarrowGradient, NarrowGradientEnd>;

}  // namespace lockstep::engine::cuda
