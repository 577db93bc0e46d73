// SPDX-License-Identifier: MIT
// Which convolutions have gradients by the kernels of engine/cuda/kernels/narrow.h. Plain functions
// of sizes.
#pragma once
#include "engine/cuda/kernels/narrow.h"
#include "engine/ops/ops.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

bool is_narrow(const ConvolutionSpec& spec, DType dtype);

NarrowSizes narrow_sizes(const ConvolutionSpec& spec);

}  // namespace lockstep::engine::cuda
