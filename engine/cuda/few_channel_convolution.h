// SPDX-License-Identifier: MIT
// Selects the convolutions with few inputs per output that engine/cuda/kernels/few_channel.h
// computes. Those kernels lack the gradient of data, which the first layer of a network does not
// need. Plain functions of sizes.
#pragma once
#include "engine/cuda/kernels/few_channel.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

bool has_few_channels(const ConvolutionSpec& spec);

FewChannelSizes few_channel_sizes(const ConvolutionSpec& spec);

}  // namespace lockstep::engine::cuda
