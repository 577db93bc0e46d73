// SPDX-License-Identifier: MIT
#include "engine/cuda/narrow_convolution.h"

#include <utility>

namespace lockstep::engine::cuda {

namespace {

bool is_between(const ConvolutionSpec& spec, DType dtype) {
  return size_of(dtype) == 2 && spec.channels == kNarrowChannels &&
         (spec.filters == 32 || spec.filters == 64) && spec.stride == 1 &&
         spec.kernel_height == kNarrowKernel && spec.kernel_width == kNarrowKernel;
}

}  // namespace

bool is_narrow(const ConvolutionSpec& spec, DType dtype) {
  return is_between(spec, dtype) && narrow_sizes(spec).band > 0;
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

bool has_narrow_group_gradient(const ConvolutionSpec& spec, DType dtype, const Context& context) {
  return context.facts().capability == 90 && is_between(spec, dtype) &&
         spec.filters == kNarrowGroupFilters && spec.padding < kNarrowKernel &&
         narrow_group_sizes(spec).band > 0;
}

// As above.
NarrowGroupSizes narrow_group_sizes(const ConvolutionSpec& spec) {
  NarrowGroupSizes sizes{.height = unsigned(spec.height),
                         .width = unsigned(spec.width),
                         .output_height = unsigned(spec.output_height()),
                         .output_width = unsigned(spec.output_width()),
                         .padding = unsigned(spec.padding),
                         .band = unsigned(spec.output_height())};
  while (sizes.band > 0 && sizes.bytes() > kMostNarrowGroupBytes) --sizes.band;
  if (sizes.band == 0) return sizes;
  const unsigned bands = sizes.bands();
  sizes.band = (sizes.output_height + bands - 1) / bands;
  return sizes;
}

bool has_narrow_outputs(const ConvolutionSpec& spec, DType dtype, const Context& context) {
  return context.facts().capability == 90 && is_between(spec, dtype) &&
         spec.padding < kNarrowKernel && narrow_output_sizes(spec, false).band > 0 &&
         narrow_output_sizes(spec, true).band > 0;
}

// As above.
NarrowOutputSizes narrow_output_sizes(const ConvolutionSpec& spec, bool turned) {
  NarrowOutputSizes sizes{.height = unsigned(spec.height),
                          .width = unsigned(spec.width),
                          .channels = unsigned(spec.channels),
                          .output_height = unsigned(spec.output_height()),
                          .output_width = unsigned(spec.output_width()),
                          .outputs = unsigned(spec.filters),
                          .padding = unsigned(spec.padding)};
  if (turned) {
    std::swap(sizes.height, sizes.output_height);
    std::swap(sizes.width, sizes.output_width);
    std::swap(sizes.channels, sizes.outputs);
    sizes.padding = kNarrowKernel - 1 - sizes.padding;
  }
  sizes.band = sizes.output_height;
  while (sizes.band > 0 && sizes.bytes(turned) > kMostNarrowOutputBytes) --sizes.band;
  if (sizes.band == 0) return sizes;
  const unsigned bands = sizes.bands();
  sizes.band = (sizes.output_height + bands - 1) / bands;
  return sizes;
}

}  // namespace lockstep::engine::cuda
