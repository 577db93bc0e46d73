// SPDX-License-Identifier: MIT
// Kernel arguments of convolutions whose kernels see few numbers, such as the first layer of a
// network for small images. They are bound by the writes of their outputs, and libraries have no
// kernel for this case. The arguments are for the forward pass and for the gradients of weights and
// bias. A tap is one of the kernel_height x kernel_width x channels numbers that a kernel sees. A
// block works on bands, which are some output rows of an image, and keeps their inputs in shared
// memory. Addresses are GPU addresses, arrays have the module's element type, and y and dy are
// aligned to 16 bytes. Sums are float32. `filters` are whole groups of 8. The gradients use the
// grid of engine/cuda/kernels/lines.h for groups of kFewChannelWidth.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/lines.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kFewChannelTaps = 9;           // gradients per kernel
inline constexpr unsigned kMostFewChannelTaps = 27;      // of a convolution
inline constexpr unsigned kMostFewChannelFilters = 128;  // one tile
inline constexpr unsigned kFewChannelWidth = 4;          // filters per thread in the gradients
inline constexpr unsigned kFewChannelLines = 6;          // outputs per thread and band
inline constexpr unsigned kMostFewChannelOutputs =
    kFewChannelLines * kLineThreads / kSumGroups;        // outputs per band
inline constexpr unsigned kMostFewChannelPixels = 4096;  // numbers that a band sees

// Holds the sizes in a type that is fast to divide.
struct FewChannelSizes {
  unsigned height = 0, width = 0, channels = 0;
  unsigned output_height = 0, output_width = 0, filters = 0;
  unsigned kernel_height = 0, kernel_width = 0, stride = 1, padding = 0;
  unsigned band = 1;  // output rows per band
  constexpr unsigned taps() const { return kernel_height * kernel_width * channels; }
  constexpr unsigned bands() const { return (output_height + band - 1) / band; }  // per image
  // Returns the numbers in a row of the padded image, and the rows that `count` output rows see.
  constexpr unsigned pitch() const { return (width + 2 * padding) * channels; }
  constexpr unsigned rows(unsigned count) const { return (count - 1) * stride + kernel_height; }
};

// Computes the outputs. Any grid; a block has kLineThreads.
struct FewChannelForward {
  static constexpr const char* kName = "few_channel_forward";
  const StepState* state = nullptr;
  FewChannelSizes sizes;
  const void *x = nullptr, *w = nullptr, *bias = nullptr;  // `bias` may be null
  void* y = nullptr;
  bool relu = false;
};

// Computes the gradients of kFewChannelTaps taps from `first_tap` on, from dy where y is above 0,
// or from all of dy if y is null. They are written, or added to dw and db; a null one is not
// wanted.
struct FewChannelGradients {
  static constexpr const char* kName = "few_channel_gradients";
  const StepState* state = nullptr;
  FewChannelSizes sizes;
  unsigned first_tap = 0;
  const void *x = nullptr, *y = nullptr, *dy = nullptr;
  Partials partials = {};  // kFewChannelTaps + 1 sums
  void *dw = nullptr, *db = nullptr;
  bool accumulate = false;
};

using FewChannelKernels = std::tuple<FewChannelForward, FewChannelGradients>;

}  // namespace lockstep::engine::cuda
