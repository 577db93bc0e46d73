// SPDX-License-Identifier: MIT
// Plain functions of sizes that select what lockstep's own kernels compute of convolutions from 32
// channels to 32 or 64 filters. engine/cuda/kernels/narrow.h and narrow_group_gradient.h compute
// gradients of weights and biases; narrow_outputs.h computes outputs and gradients of data.
// `capability` is 90 for compute capability 9.0, which the latter two kernels require.
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
// Returns the sizes; `turned`: for the gradient of data. For few images, bands are small, so that
// their blocks fill more of the GPU. Results do not depend on this.
NarrowOutputSizes narrow_output_sizes(const ConvolutionSpec& spec, bool turned,
                                      std::size_t images = 1, std::size_t multiprocessors = 1);

}  // namespace lockstep::engine::cuda
