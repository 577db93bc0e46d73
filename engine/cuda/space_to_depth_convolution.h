// SPDX-License-Identifier: MIT
// Selects convolutions of stride 2 over few channels, such as the first layer of a network for
// photographs. cuDNN has good kernels for 16 channels, but not for 3. A convolution of stride 1
// therefore computes the forward pass and the gradient of weights. Its images have one pixel per
// block of 2 x 2 pixels (engine/cuda/kernels/space_to_depth.h). Weights and their gradients keep
// their layout, and are rearranged for the call. Plain functions of sizes.
#pragma once
#include "engine/cuda/kernels/space_to_depth.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

bool uses_space_to_depth(const ConvolutionSpec& spec);

// Returns the convolution that replaces one with uses_space_to_depth. Its channels are whole groups
// of 8.
ConvolutionSpec space_to_depth(const ConvolutionSpec& spec);

SpaceToDepthSizes space_to_depth_sizes(const ConvolutionSpec& spec);

}  // namespace lockstep::engine::cuda
