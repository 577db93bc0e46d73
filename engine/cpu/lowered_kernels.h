// SPDX-License-Identifier: MIT
// Own kernels for convolutions of any window and stride as products of matrices: a row for each
// output pixel, a column for each filter, and for each place of the window, called a tap, the
// channels below it. The matrix of inputs is never made: kernels read its rows where they lie, by
// way of a table of addresses for each tap; what lies in the padding is a row of zeros. Backward
// adds to rows by the same tables. Compiled for each instruction set and chosen as the program
// runs. Sources: Dukhan, The Indirect Convolution Algorithm (2019); Goto and van de Geijn, Anatomy
// of High-Performance Matrix Multiplication (2008).
//
// Channels and filters are multiples of 16; images NHWC float32; weights [filters, kernel height,
// kernel width, channels]. Pure functions; any thread.
#pragma once
#include <algorithm>
#include <cstddef>

namespace lockstep::engine::cpu {

struct LoweredShape {
  std::size_t height = 0, width = 0, channels = 0;  // of the input
  std::size_t filters = 0;
  std::size_t kernel_height = 1, kernel_width = 1, stride = 1, padding = 0;
  bool relu = false;

  static constexpr std::size_t kStrip = 6;     // rows that are multiplied at once
  static constexpr std::size_t kColumns = 64;  // of a whole panel
  static constexpr std::size_t kDepth = 256;   // products at most that are summed in registers
  static constexpr std::size_t kGroup = 16;    // filters: the unit in which weights are laid out
  static constexpr std::size_t kPixels = 240;  // at most of a block of backward

  std::size_t output_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t output_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  std::size_t pixels() const { return output_height() * output_width(); }  // of an image
  std::size_t taps() const { return kernel_height * kernel_width; }
  std::size_t inputs() const { return height * width * channels; }
  std::size_t outputs() const { return pixels() * filters; }
  std::size_t weights() const { return taps() * channels * filters; }
  // Whether output pixel i is computed from input pixel i alone.
  bool plain() const { return taps() == 1 && stride == 1 && padding == 0; }
  std::size_t groups() const { return filters / kGroup; }

  // Output pixels go through in blocks, whose inputs stay in the second cache while all panels of
  // weights are multiplied by them: of rows of so many floats.
  static std::size_t block(std::size_t row) {
    const std::size_t fit = (std::size_t{256} << 10) / (row * sizeof(float));
    return std::clamp<std::size_t>(fit / kStrip, 8, 32) * kStrip;
  }
  std::size_t forward_block() const { return block(channels * std::min(taps(), stride * stride)); }
  std::size_t backward_block() const { return block(filters); }

  // Floats that a call needs beside its operands, aligned to 64 bytes; a pointer counts as two.
  std::size_t forward_scratch() const {
    return channels + 2 * (taps() + 1) * (forward_block() + kStrip) + 64;
  }
  std::size_t backward_scratch() const {
    const std::size_t strips = (filters + kStrip - 1) / kStrip;
    return 2 * channels + kPixels * (strips * kStrip + kColumns) + 4 * kPixels + 64;
  }
};

// Groups [first, first + count) of the filters of w, laid out as forward reads them (`forward`) and
// the gradient of the input (`backward`): weights() floats each; either may be null.
void lowered_weights(const LoweredShape& shape, const float* w, std::size_t first,
                     std::size_t count, float* forward, float* backward);

// y = relu(x * w + bias); `bias` may be null.
struct LoweredForward {
  std::size_t images = 0;
  const float* x = nullptr;
  const float* weights = nullptr;  // as laid out for forward
  const float* bias = nullptr;
  float* y = nullptr;
  float* scratch = nullptr;
};
void lowered_forward(const LoweredShape& shape, const LoweredForward& call);

// dx and dw may be null. Where `relu`, dy is masked by y in place.
struct LoweredBackward {
  std::size_t images = 0;
  const float* x = nullptr;
  const float* y = nullptr;  // of forward, where `relu`
  float* dy = nullptr;
  const float* weights = nullptr;  // as laid out for backward
  float* dx = nullptr;
  float* dw = nullptr;
  bool accumulate = false;  // to what dw holds
  float* scratch = nullptr;
};
void lowered_backward(const LoweredShape& shape, const LoweredBackward& call);

}  // namespace lockstep::engine::cpu
