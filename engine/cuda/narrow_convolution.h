// SPDX-License-Identifier: MIT
// These plain functions of sizes choose what own kernels compute of convolutions from 32 channels
// to 32 or 64 filters: those of engine/cuda/kernels/narrow.h and narrow_group_gradient.h gradients
// of weights and biases, those of narrow_outputs.h outputs and gradients of data. `capability` is
// 90 for compute capability 9.0, which alone has the two latter.
#pragma once
#include "engine/cuda/kernels/narrow.h"
#include "engine/cuda/kernels/narrow_group_gradient.h"
#include "engine/cuda/kernels/narrow_outputs.h"
#include "engine/ops/ops.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

bool is_narrow(const ConvolutionSpec& spec, DType dtype);
NarrowSizes narrow_sizes(const ConvolutionSpec& spec);

bool has_narrow_group_gradient(const ConvolutionSpec& spec, DType dtype, int capability);
NarrowGroupSizes narrow_group_sizes(const ConvolutionSpec& spec);

bool has_narrow_outputs(const ConvolutionSpec& spec, DType dtype, int capability);
// `turned`: of the gradient of data. Of few images bands are small, so that their blocks fill more
// of a GPU; results do not depend on that.
NarrowOutputSizes narrow_output_sizes(const ConvolutionSpec& spec, bool turned,
                                      std::size_t images = 1, std::size_t multiprocessors = 1);

}  // namespace lockstep::engine::cuda
