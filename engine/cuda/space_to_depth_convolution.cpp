// SPDX-License-Identifier: MIT
#include "engine/cuda/space_to_depth_convolution.h"

namespace lockstep::engine::cuda {

bool uses_space_to_depth(const ConvolutionSpec& spec) {
  constexpr std::size_t kMostChannels = 4;
  return spec.stride == 2 && spec.channels <= kMostChannels && spec.kernel_height > 2 &&
         spec.kernel_width > 2;
}

// The new image has as many blocks as the windows of all outputs cover.
ConvolutionSpec space_to_depth(const ConvolutionSpec& spec) {
  ConvolutionSpec result = spec;
  result.kernel_height = (spec.kernel_height + 1) / 2;
  result.kernel_width = (spec.kernel_width + 1) / 2;
  result.height = spec.output_height() + result.kernel_height - 1;
  result.width = spec.output_width() + result.kernel_width - 1;
  result.channels = (4 * spec.channels + 7) / 8 * 8;
  result.stride = 1;
  result.padding = 0;
  return result;
}

SpaceToDepthSizes space_to_depth_sizes(const ConvolutionSpec& spec) {
  const ConvolutionSpec to = space_to_depth(spec);
  return {.height = spec.height,
          .width = spec.width,
          .channels = spec.channels,
          .padding = spec.padding,
          .kernel_height = spec.kernel_height,
          .kernel_width = spec.kernel_width,
          .filters = spec.filters,
          .deep_height = to.height,
          .deep_width = to.width,
          .depth = to.channels};
}

}  // namespace lockstep::engine::cuda
