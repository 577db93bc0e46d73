// SPDX-License-Identifier: MIT
// Convolutions of stride 2 over few channels, as the first of a network for photographs: cuDNN has
// no good kernels for 3 channels, and good ones for 16. So forward and the gradient of weights are
// computed of images in which blocks of 2 x 2 pixels have become one (engine/cuda/kernels/fold.h),
// by a convolution of stride 1. Weights and their gradients lie as everywhere, and are rearranged
// for the call. Plain functions of sizes.
#pragma once
#include "engine/cuda/kernels/fold.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

bool folds(const ConvolutionSpec& spec);

// The convolution that takes the place of one that folds; its channels are whole groups of 8.
ConvolutionSpec folded(const ConvolutionSpec& spec);

FoldSizes fold_sizes(const ConvolutionSpec& spec);

}  // namespace lockstep::engine::cuda
