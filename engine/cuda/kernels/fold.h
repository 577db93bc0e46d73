// SPDX-License-Identifier: MIT
// A convolution of stride 2 over few channels as one of stride 1 over many: blocks of 2 x 2 pixels
// of the padded image become one pixel, whose channels are those of the block's pixels, row by row,
// and zeros up to `depth`. With p the padding,
//   folded[by, bx, (2 dy + dx) channels + c] = x[2 by + dy - p, 2 bx + dx - p, c]
// and weights likewise, so kernels of k x k become (k + 1) / 2 x (k + 1) / 2. Arguments of the
// kernels that go there, and back with the gradient of weights. Which convolutions go so:
// engine/cuda/folded_convolution.h. Addresses are the GPU's, arrays are of the module's type; any
// grid.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

struct FoldSizes {
  std::size_t height = 0, width = 0, channels = 0, padding = 0;  // of the image
  std::size_t kernel_height = 0, kernel_width = 0, filters = 0;  // before
  std::size_t folded_height = 0, folded_width = 0, depth = 0;    // of the folded image
};

// Rows that are planned and not in use become zeros: products go over all of them.
struct FoldImages {
  static constexpr const char* kName = "fold_images";
  const StepState* state = nullptr;
  FoldSizes sizes;
  std::size_t rows = 0;  // planned
  const void* x = nullptr;
  void* folded = nullptr;  // aligned to 16 bytes
};

struct FoldWeights {
  static constexpr const char* kName = "fold_weights";
  FoldSizes sizes;
  const void* w = nullptr;
  void* folded = nullptr;
};

struct UnfoldGradient {
  static constexpr const char* kName = "unfold_gradient";
  FoldSizes sizes;
  const void* folded = nullptr;
  void* dw = nullptr;
};

using FoldKernels = std::tuple<FoldImages, FoldWeights, UnfoldGradient>;

}  // namespace lockstep::engine::cuda
