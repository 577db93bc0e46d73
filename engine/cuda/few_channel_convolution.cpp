// SPDX-License-Identifier: MIT
#include "engine/cuda/few_channel_convolution.h"

namespace lockstep::engine::cuda {
namespace {

// Returns the output rows per band, as even as possible within an image; 0 if no band fits.
unsigned band_rows(const FewChannelSizes& s) {
  unsigned rows = unsigned(least(s.output_height, kMostFewChannelOutputs / s.output_width));
  while (rows > 0 && std::size_t(s.rows(rows)) * s.pitch() > kMostFewChannelPixels) --rows;
  if (rows == 0) return 0;
  const unsigned bands = (s.output_height + rows - 1) / rows;
  return (s.output_height + bands - 1) / bands;
}

}  // namespace

bool has_few_channels(const ConvolutionSpec& spec) {
  return spec.kernel_height * spec.kernel_width * spec.channels <= kMostFewChannelTaps &&
         spec.channels <= 4 && spec.filters % 8 == 0 && spec.filters <= kMostFewChannelFilters &&
         few_channel_sizes(spec).band > 0;
}

FewChannelSizes few_channel_sizes(const ConvolutionSpec& spec) {
  FewChannelSizes sizes{.height = unsigned(spec.height),
                        .width = unsigned(spec.width),
                        .channels = unsigned(spec.channels),
                        .output_height = unsigned(spec.output_height()),
                        .output_width = unsigned(spec.output_width()),
                        .filters = unsigned(spec.filters),
                        .kernel_height = unsigned(spec.kernel_height),
                        .kernel_width = unsigned(spec.kernel_width),
                        .stride = unsigned(spec.stride),
                        .padding = unsigned(spec.padding)};
  sizes.band = band_rows(sizes);
  return sizes;
}

}  // namespace lockstep::engine::cuda
