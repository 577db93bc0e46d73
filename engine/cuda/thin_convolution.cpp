// SPDX-License-Identifier: MIT
#include "engine/cuda/thin_convolution.h"

namespace lockstep::engine::cuda {

bool is_thin(const ConvolutionSpec& spec) {
  return spec.kernel_height * spec.kernel_width * spec.channels <= kMostThinTaps &&
         spec.channels <= 4 && spec.filters % 8 == 0 && spec.filters <= kMostThinFilters;
}

ThinSizes thin_sizes(const ConvolutionSpec& spec) {
  return {.height = unsigned(spec.height),
          .width = unsigned(spec.width),
          .channels = unsigned(spec.channels),
          .output_height = unsigned(spec.output_height()),
          .output_width = unsigned(spec.output_width()),
          .filters = unsigned(spec.filters),
          .kernel_height = unsigned(spec.kernel_height),
          .kernel_width = unsigned(spec.kernel_width),
          .stride = unsigned(spec.stride),
          .padding = unsigned(spec.padding)};
}

}  // namespace lockstep::engine::cuda
