// SPDX-License-Identifier: MIT
// Own kernels for convolutions of any window and stride as matrix products. The matrix of inputs
// has one row per output pixel; a row holds the input channels at each position of the window (a
// tap). A filter is a column. This matrix is never made: kernels read its rows in place through a
// table of addresses per tap, and padding is a row of zeros. Backward adds to rows through the same
// tables. Compiled for each instruction set and chosen at run time. Sources: Dukhan, The Indirect
// Convolution Algorithm (2019); Goto and van de Geijn, Anatomy of High-Performance Matrix
// Multiplication (2008).
//
// Channels and filters are multiples of 16. Images are NHWC float32; weights are [filters, kernel
// height, kernel width, channels]. Pure functions; thread-safe.
#pragma once
#include <algorithm>
#include <cstddef>

namespace lockstep::engine::cpu {

struct LoweredShape {
  std::size_t height = 0, width = 0, channels = 0;  // input size
  std::size_t filters = 0;
  std::size_t kernel_height = 1, kernel_width = 1, stride = 1, padding = 0;
  bool relu = false;

  static constexpr std::size_t kStrip = 6;     // rows multiplied at once
  static constexpr std::size_t kColumns = 64;  // columns of a whole panel
  static constexpr std::size_t kDepth = 256;   // most products summed in registers
  static constexpr std::size_t kGroup = 16;    // filters: the unit of the weights' layout
  static constexpr std::size_t kPixels = 240;  // most pixels of a block of backward

  std::size_t output_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t output_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  std::size_t pixels() const { return output_height() * output_width(); }  // per image
  std::size_t taps() const { return kernel_height * kernel_width; }
  std::size_t inputs() const { return height * width * channels; }
  std::size_t outputs() const { return pixels() * filters; }
  std::size_t weights() const { return taps() * channels * filters; }
  // Returns whether output pixel i depends on input pixel i alone.
  bool plain() const { return taps() == 1 && stride == 1 && padding == 0; }
  std::size_t groups() const { return filters / kGroup; }

  // Returns the pixels of a block for rows of `row` floats. The block's inputs stay in the L2 cache
  // while all panels of weights are multiplied by them.
  static std::size_t block(std::size_t row) {
    const std::size_t fit = (std::size_t{256} << 10) / (row * sizeof(float));
    return std::clamp<std::size_t>(fit / kStrip, 8, 32) * kStrip;
  }
  std::size_t forward_block() const { return block(channels * std::min(taps(), stride * stride)); }
  std::size_t backward_block() const { return block(filters); }

  // Returns the floats of scratch that a call needs, aligned to 64 bytes; a pointer counts as two.
  std::size_t forward_scratch() const {
    return channels + 2 * (taps() + 1) * (forward_block() + kStrip) + 64;
  }
  std::size_t backward_scratch() const {
    const std::size_t strips = (filters + kStrip - 1) / kStrip;
    return 2 * channels + kPixels * (strips * kStrip + kColumns) + 4 * kPixels + 64;
  }
};

// Writes groups [first, first + count) of the filters of w in the layouts of forward (`forward`)
// and of the gradient of the input (`backward`), weights() floats each; either may be null.
void lowered_weights(const LoweredShape& shape, const float* w, std::size_t first,
                     std::size_t count, float* forward, float* backward);

// Computes y = relu(x * w + bias); `bias` may be null.
struct LoweredForward {
  std::size_t images = 0;
  const float* x = nullptr;
  const float* weights = nullptr;  // in forward's layout
  const float* bias = nullptr;
  float* y = nullptr;
  float* scratch = nullptr;
};
void lowered_forward(const LoweredShape& shape, const LoweredForward& call);

// Computes dx and dw; either may be null. If `relu`, dy is masked by y in place.
struct LoweredBackward {
  std::size_t images = 0;
  const float* x = nullptr;
  const float* y = nullptr;  // forward's, if `relu`
  float* dy = nullptr;
  const float* weights = nullptr;  // in backward's layout
  float* dx = nullptr;
  float* dw = nullptr;
  bool accumulate = false;  // adds to dw
  float* scratch = nullptr;
};
void lowered_backward(const LoweredShape& shape, const LoweredBackward& call);

}  // namespace lockstep::engine::cpu
