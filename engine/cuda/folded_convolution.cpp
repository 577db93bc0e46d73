// SPDX-License-Identifier: MIT
#include "engine/cuda/folded_convolution.h"

namespace lockstep::engine::cuda {

bool folds(const ConvolutionSpec& spec) {
  constexpr std::size_t kMostChannels = 4;
  return spec.stride == 2 && spec.channels <= kMostChannels && spec.kernel_height > 2 &&
         spec.kernel_width > 2;
}

// As many blocks as the windows of all outputs cover.
ConvolutionSpec folded(const ConvolutionSpec& spec) {
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

FoldSizes fold_sizes(const ConvolutionSpec& spec) {
  const ConvolutionSpec to = folded(spec);
  return {.height = spec.height,
          .width = spec.width,
          .channels = spec.channels,
          .padding = spec.padding,
          .kernel_height = spec.kernel_height,
          .kernel_width = spec.kernel_width,
          .filters = spec.filters,
          .folded_height = to.height,
          .folded_width = to.width,
          .depth = to.channels};
}

}  // namespace lockstep::engine::cuda
