// SPDX-License-Identifier: MIT
// Which convolutions are computed by the kernels of engine/cuda/kernels/thin.h: those whose kernels
// see few numbers, but for the gradient of data, which the first of a network does not have. Plain
// functions of sizes.
#pragma once
#include "engine/cuda/kernels/thin.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

bool is_thin(const ConvolutionSpec& spec);

ThinSizes thin_sizes(const ConvolutionSpec& spec);

}  // namespace lockstep::engine::cuda
