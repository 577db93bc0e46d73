// SPDX-License-Identifier: MIT
// Which convolutions are computed by the kernels of engine/cuda/kernels/narrow.h and
// narrow_group_gradient.h (gradients of weights and biases), and of narrow_outputs.h (outputs and
// gradients of data). Plain functions of sizes.
#pragma once
#include "engine/cuda/context.h"
#include "engine/cuda/kernels/narrow.h"
#include "engine/cuda/kernels/narrow_group_gradient.h"
#include "engine/cuda/kernels/narrow_outputs.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

bool is_narrow(const ConvolutionSpec& spec, DType dtype);

NarrowSizes narrow_sizes(const ConvolutionSpec& spec);

// These also ask what the GPU can.
bool has_narrow_group_gradient(const ConvolutionSpec& spec, DType dtype, const Context& context);

NarrowGroupSizes narrow_group_sizes(const ConvolutionSpec& spec);

bool has_narrow_outputs(const ConvolutionSpec& spec, DType dtype, const Context& context);

// `turned`: of the gradient of data.
NarrowOutputSizes narrow_output_sizes(const ConvolutionSpec& spec, bool turned);

}  // namespace lockstep::engine::cuda
