// SPDX-License-Identifier: MIT
// Own kernels for convolutions with few input channels, as in the first layer of a network: the
// direct method with the filters in the lanes of vectors. They take any kernel, stride and padding;
// filters are multiples of 16. Images are NHWC, of float or BFloat16; weights and sums are float32.
// Compiled for each instruction set and chosen at run time. Pure functions; thread-safe.
#pragma once
#include <cstddef>

#include "engine/base/bfloat16.h"

namespace lockstep::engine::cpu {

struct FewChannelsShape {
  std::size_t height = 0, width = 0, channels = 0;  // input size
  std::size_t filters = 0;
  std::size_t kernel_height = 1, kernel_width = 1, stride = 1, padding = 0;
  bool relu = false;
  bool narrow = false;  // bfloat16 images, whose input is widened first

  static constexpr std::size_t kGroup = 9;  // products of a pixel summed together

  std::size_t output_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t output_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  std::size_t inputs() const { return height * width * channels; }
  std::size_t outputs() const { return output_height() * output_width() * filters; }
  std::size_t depth() const { return kernel_height * kernel_width * channels; }
  std::size_t groups() const { return (depth() + kGroup - 1) / kGroup; }
  std::size_t padded_width() const { return width + 2 * padding; }
  std::size_t padded_image() const { return (height + 2 * padding) * padded_width() * channels; }
  // Returns where product k of a window begins, relative to the window's first input.
  std::size_t offset(std::size_t k) const {
    const std::size_t row = kernel_width * channels;
    return k / row * padded_width() * channels + k % row;
  }
  std::size_t scratch() const {  // floats
    return padding == 0 && !narrow ? 0 : padded_image();
  }
};

// Computes y = relu(x * w + bias), with w as [depth, filters]; `bias` may be null.
template <class T>
void few_channels_forward(const FewChannelsShape& shape, std::size_t images, const T* x,
                          const float* w, const T* bias, T* y, float* scratch);

// Adds to `sums`, [groups * kGroup, filters], and to `bias` unless it is null. Rows of `sums`
// beyond `depth` have unspecified contents. Reads forward's `y` if `relu`.
template <class T>
void few_channels_gradient(const FewChannelsShape& shape, std::size_t images, const T* x,
                           const T* y, const T* dy, float* sums, float* bias, float* scratch);

}  // namespace lockstep::engine::cpu
