// SPDX-License-Identifier: MIT
// Convolutions whose kernels see few numbers, as the first of a network for small images: so little
// is multiplied that the outputs' way to memory is all that counts, and libraries have no kernel
// that knows it. Arguments of forward, and of the gradients of weights and bias. Taps are the
// numbers that a kernel sees, kernel_height x kernel_width x channels. A block works on bands: some
// rows of an image's outputs. What their windows see lies in shared memory. Addresses are the
// GPU's, arrays are of the module's type, y and dy aligned to 16 bytes; sums are float32. `filters`
// are whole groups of 8; the grid of the gradients is that of engine/cuda/kernels/lines.h for
// groups of kFewChannelWidth.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/lines.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kFewChannelTaps = 9;           // whose gradients one kernel has
inline constexpr unsigned kMostFewChannelTaps = 27;      // of a convolution
inline constexpr unsigned kMostFewChannelFilters = 128;  // one tile of them
inline constexpr unsigned kFewChannelWidth = 4;          // filters of a thread that adds gradients
inline constexpr unsigned kFewChannelLines = 6;          // its outputs in a band
inline constexpr unsigned kMostFewChannelOutputs =
    kFewChannelLines * kLineThreads / kSumGroups;        // of a band
inline constexpr unsigned kMostFewChannelPixels = 4096;  // numbers that a band sees

// In numbers that are fast to divide.
struct FewChannelSizes {
  unsigned height = 0, width = 0, channels = 0;
  unsigned output_height = 0, output_width = 0, filters = 0;
  unsigned kernel_height = 0, kernel_width = 0, stride = 1, padding = 0;
  unsigned band = 1;  // rows of outputs
  constexpr unsigned taps() const { return kernel_height * kernel_width * channels; }
  constexpr unsigned bands() const { return (output_height + band - 1) / band; }  // of an image
  // Returns the numbers in a row of the padded image, and the rows that `count` rows of outputs
  // see.
  constexpr unsigned pitch() const { return (width + 2 * padding) * channels; }
  constexpr unsigned rows(unsigned count) const { return (count - 1) * stride + kernel_height; }
};

// Any grid; a block has kLineThreads.
struct FewChannelForward {
  static constexpr const char* kName = "few_channel_forward";
  const StepState* state = nullptr;
  FewChannelSizes sizes;
  const void *x = nullptr, *w = nullptr, *bias = nullptr;  // null: no bias
  void* y = nullptr;
  bool relu = false;
};

// The gradients of kFewChannelTaps taps from `first_tap` on, of dy where y is above 0, or of all of
// it where y is null. They are written, or added to; what is not wanted of dw and db is null.
struct FewChannelGradients {
  static constexpr const char* kName = "few_channel_gradients";
  const StepState* state = nullptr;
  FewChannelSizes sizes;
  unsigned first_tap = 0;
  const void *x = nullptr, *y = nullptr, *dy = nullptr;
  Partials partials = {};  // of kFewChannelTaps + 1 sums
  void *dw = nullptr, *db = nullptr;
  bool accumulate = false;
};

using FewChannelKernels = std::tuple<FewChannelForward, FewChannelGradients>;

}  // namespace lockstep::engine::cuda
