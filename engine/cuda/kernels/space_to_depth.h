// SPDX-License-Identifier: MIT
// A convolution of stride 2 over few channels as one of stride 1 over many. Blocks of 2 x 2 pixels
// of the padded image become one deep pixel. Its channels are those of the block's pixels, row by
// row, and zeros up to `depth`. With the padding p,
//   deep[by, bx, (2 dy + dx) channels + c] = x[2 by + dy - p, 2 bx + dx - p, c]
// and likewise for weights, so kernels of k x k become (k + 1) / 2 x (k + 1) / 2. These are the
// arguments of the kernels that rearrange images and weights, and the gradient of weights back.
// engine/cuda/space_to_depth_convolution.h selects the convolutions. Addresses are GPU addresses,
// arrays have the module's element type, and any grid works.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

struct SpaceToDepthSizes {
  std::size_t height = 0, width = 0, channels = 0, padding = 0;  // image sizes
  std::size_t kernel_height = 0, kernel_width = 0, filters = 0;  // of the original convolution
  std::size_t deep_height = 0, deep_width = 0, depth = 0;        // sizes of the deep image
};

// Makes the deep images. Planned rows that are not in use become zeros, since products go over all
// of them.
struct SpaceToDepthImages {
  static constexpr const char* kName = "space_to_depth_images";
  const StepState* state = nullptr;
  SpaceToDepthSizes sizes;
  std::size_t rows = 0;  // planned rows
  const void* x = nullptr;
  void* deep = nullptr;  // aligned to 16 bytes
};

struct SpaceToDepthWeights {
  static constexpr const char* kName = "space_to_depth_weights";
  SpaceToDepthSizes sizes;
  const void* w = nullptr;
  void* deep = nullptr;
};

struct DepthToSpaceGradient {
  static constexpr const char* kName = "depth_to_space_gradient";
  SpaceToDepthSizes sizes;
  const void* deep = nullptr;
  void* dw = nullptr;
};

using SpaceToDepthKernels =
    std::tuple<SpaceToDepthImages, SpaceToDepthWeights, DepthToSpaceGradient>;

}  // namespace lockstep::engine::cuda
