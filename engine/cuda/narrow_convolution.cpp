// SPDX-License-Identifier: MIT
#include "engine/cuda/narrow_convolution.h"

namespace lockstep::engine::cuda {

bool is_narrow(const ConvolutionSpec& spec, DType dtype) {
  return size_of(dtype) == 2 && spec.channels == kNarrowChannels &&
         (spec.filters == 32 || spec.filters == 64) && spec.stride == 1 &&
         spec.kernel_height == kNarrowKernel && spec.kernel_width == kNarrowKernel &&
         narrow_sizes(spec).band > 0;
}

// The rows of a band are as even as can be in an image; 0 where not even one has room.
NarrowSizes narrow_sizes(const ConvolutionSpec& spec) {
  NarrowSizes sizes{.height = unsigned(spec.height),
                    .width = unsigned(spec.width),
                    .output_height = unsigned(spec.output_height()),
                    .output_width = unsigned(spec.output_width()),
                    .filters = unsigned(spec.filters),
                    .padding = unsigned(spec.padding),
                    .band = unsigned(spec.output_height())};
  while (sizes.band > 0 && 2 * sizes.band_bytes() > kMostNarrowBytes) --sizes.band;
  if (sizes.band == 0) return sizes;
  const unsigned bands = sizes.bands();
  sizes.band = (sizes.output_height + bands - 1) / bands;
  return sizes;
}

}  // namespace lockstep::engine::cuda
