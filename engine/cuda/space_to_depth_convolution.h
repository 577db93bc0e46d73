// SPDX-License-Identifier: MIT
// Convolutions of stride 2 over few channels, as the first of a network for photographs: cuDNN has
// no good kernels for 3 channels, and good ones for 16. So forward and the gradient of weights are
// computed of images in which blocks of 2 x 2 pixels have become one
// (engine/cuda/kernels/space_to_depth.h), by a convolution of stride 1. Weights and their gradients
// lie as everywhere, and are rearranged for the call. Plain functions of sizes.
#pragma once
#include "engine/cuda/kernels/space_to_depth.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

bool uses_space_to_depth(const ConvolutionSpec& spec);

// The convolution that takes the place of one that uses space to depth; its channels are whole
// groups of 8.
ConvolutionSpec space_to_depth(const ConvolutionSpec& spec);

SpaceToDepthSizes space_to_depth_sizes(const ConvolutionSpec& spec);

}  // namespace lockstep::engine::cuda
