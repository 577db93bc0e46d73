// SPDX-License-Identifier: MIT
// Kernel arguments of gradients of weights and biases, for convolutions with 32 channels, 32 or 64
// filters, 3x3 kernels, stride 1 and 16-bit types. They use tensor cores. For small images, the
// libraries have no kernel for these that fills a GPU. A block works on bands, which are some
// output rows of an image. Shared memory holds the gradients and inputs of two bands: one is added
// while the next arrives. Addresses are GPU addresses; x and dy are aligned to 16 bytes. Sums are
// float32, and float64 over chunks, whose number depends on the sizes only.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kNarrowChannels = 32, kNarrowKernel = 3;
inline constexpr unsigned kNarrowTaps = kNarrowKernel * kNarrowKernel;
inline constexpr unsigned kMostNarrowThreads = 256;     // per block that adds
inline constexpr unsigned kMostNarrowBytes = 96 << 10;  // shared memory per block
inline constexpr unsigned kMostNarrowChunks = 128;
// The most shared memory of a block on GPUs of compute capability 9.0.
inline constexpr unsigned kMostPlaneBytes = 227 << 10;
inline constexpr unsigned kNarrowEndThreads = 256;
inline constexpr unsigned kNarrowEndValues = 128;  // final sums per block

struct NarrowSizes {
  unsigned height = 0, width = 0;
  unsigned output_height = 0, output_width = 0, filters = 0;
  unsigned padding = 0;
  unsigned band = 0;                                                              // output rows
  constexpr unsigned bands() const { return (output_height + band - 1) / band; }  // per image
  // Returns the pixels of a row of the padded image, and the input rows of a band.
  constexpr unsigned pitch() const { return width + 2 * padding; }
  constexpr unsigned rows() const { return band + kNarrowKernel - 1; }
  // Returns the outputs of a band, rounded up to whole steps of the tensor cores.
  constexpr unsigned positions() const { return (band * output_width + 15) / 16 * 16; }
  // Returns the bytes of shared memory for the inputs of a band, and for the whole band.
  constexpr unsigned pixel_bytes() const { return rows() * pitch() * kNarrowChannels * 2; }
  constexpr unsigned band_bytes() const { return pixel_bytes() + positions() * filters * 2; }
  // Returns the number of weights, whose sums have the order of the weights in memory, and of all
  // sums of a chunk. Sums of biases come last.
  constexpr unsigned weights() const { return filters * kNarrowTaps * kNarrowChannels; }
  constexpr unsigned sums() const { return weights() + filters; }
  // Returns the threads of a block that adds. A warp has 8 channels and 32 filters.
  constexpr unsigned threads() const { return filters / 32 * kNarrowChannels / 8 * 32; }
};

// Computes the sums of chunks. Any number of blocks, with 2 band_bytes() of dynamic shared memory
// each. A chunk takes every `chunks`-th band.
struct NarrowGradient {
  static constexpr const char* kName = "narrow_gradient";
  const StepState* state = nullptr;
  NarrowSizes sizes;
  const void *x = nullptr, *dy = nullptr;
  unsigned chunks = 1;
  float* sums = nullptr;  // [chunks][sums()]
};

// Adds the chunks into dw and db, or to their values. db null: not wanted. A block has
// kNarrowEndValues sums.
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
