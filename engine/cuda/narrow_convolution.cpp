// SPDX-License-Identifier: MIT
#include "engine/cuda/narrow_convolution.h"

#include <utility>

#include "engine/cuda/kernels/lines.h"

namespace lockstep::engine::cuda {
namespace {

bool is_between(const ConvolutionSpec& spec, DType dtype) {
  return size_of(dtype) == 2 && spec.channels == kNarrowChannels &&
         (spec.filters == 32 || spec.filters == 64) && spec.stride == 1 &&
         spec.kernel_height == kNarrowKernel && spec.kernel_width == kNarrowKernel;
}

// Returns whether kernels on planes support it. The gradient of data must not have a negative
// padding, and Divisor needs a divisor of at least two.
bool has_planes(const ConvolutionSpec& spec, DType dtype, int capability) {
  return capability == 90 && is_between(spec, dtype) && spec.padding < kNarrowKernel &&
         spec.width > 1 && spec.output_width() > 1;
}

// Sets the rows per band to as many as fit, and as even as possible within an image; 0 if not even
// one fits. A pixel takes at least the bytes of all channels.
template <class Sizes, class Bytes>
void fit_band(Sizes& sizes, std::size_t most, Bytes bytes) {
  const std::size_t row = std::size_t(sizes.pitch()) * kNarrowChannels * 2;
  sizes.band = unsigned(least(sizes.output_height, most / row));
  while (sizes.band > 0 && bytes() > most) --sizes.band;
  if (sizes.band == 0) return;
  const unsigned bands = sizes.bands();
  sizes.band = (sizes.output_height + bands - 1) / bands;
}

}  // namespace

bool is_narrow(const ConvolutionSpec& spec, DType dtype) {
  return is_between(spec, dtype) && narrow_sizes(spec).band > 0;
}

NarrowSizes narrow_sizes(const ConvolutionSpec& spec) {
  NarrowSizes sizes{.height = unsigned(spec.height),
                    .width = unsigned(spec.width),
                    .output_height = unsigned(spec.output_height()),
                    .output_width = unsigned(spec.output_width()),
                    .filters = unsigned(spec.filters),
                    .padding = unsigned(spec.padding)};
  fit_band(sizes, kMostNarrowBytes, [&] { return 2 * sizes.band_bytes(); });
  return sizes;
}

bool has_narrow_group_gradient(const ConvolutionSpec& spec, DType dtype, int capability) {
  return has_planes(spec, dtype, capability) && spec.filters == kNarrowGroupFilters &&
         narrow_group_sizes(spec).band > 0;
}

NarrowGroupSizes narrow_group_sizes(const ConvolutionSpec& spec) {
  NarrowGroupSizes sizes{.height = unsigned(spec.height),
                         .width = unsigned(spec.width),
                         .output_height = unsigned(spec.output_height()),
                         .output_width = unsigned(spec.output_width()),
                         .padding = unsigned(spec.padding)};
  fit_band(sizes, kMostPlaneBytes, [&] { return sizes.bytes(); });
  return sizes;
}

bool has_narrow_outputs(const ConvolutionSpec& spec, DType dtype, int capability) {
  return has_planes(spec, dtype, capability) && narrow_output_sizes(spec, false).band > 0 &&
         narrow_output_sizes(spec, true).band > 0;
}

NarrowOutputSizes narrow_output_sizes(const ConvolutionSpec& spec, bool turned, std::size_t images,
                                      std::size_t multiprocessors) {
  constexpr unsigned kLeastBand = 4;  // rows
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
  fit_band(sizes, kMostPlaneBytes, [&] { return sizes.bytes(turned); });
  while (sizes.band > kLeastBand && 2 * images * sizes.bands() <= multiprocessors)
    sizes.band = (sizes.band + 1) / 2;
  return sizes;
}

}  // namespace lockstep::engine::cuda
