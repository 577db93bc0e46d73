// SPDX-License-Identifier: MIT
// The kernels of engine/cuda/kernels/few_channel.h compute convolutions whose kernels see few
// numbers, but for the gradient of data, which the first of a network does not have. Plain
// functions of sizes.
#pragma once
#include "engine/cuda/kernels/few_channel.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

bool has_few_channels(const ConvolutionSpec& spec);

FewChannelSizes few_channel_sizes(const ConvolutionSpec& spec);

}  // namespace lockstep::engine::cuda
