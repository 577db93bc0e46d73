// SPDX-License-Identifier: MIT
// Own kernels for 3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3). Each tile of 4x4 outputs
// is computed from a tile of 6x6 inputs with 36 products per channel pair, where the direct method
// takes 144. Backward is the adjoint of the same algorithm. Compiled for each instruction set and
// chosen at run time. Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks
// (2016).
//
// Channels and filters are multiples of 16. Images are NHWC, of T (float or BFloat16); weights are
// [filters, 3, 3, channels] of T. Products and sums are float32 for both types, except in backward
// with `pairs`. The 36 planes of transformed weights lie in panels of a few vectors of columns, as
// the products read them. Only `winograd_weights` and the kernels know that layout. Pure functions;
// thread-safe.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/base/bfloat16.h"

namespace lockstep::engine::cpu {

struct WinogradShape {
  std::size_t height = 0, width = 0, channels = 0;  // input size
  std::size_t filters = 0;
  std::size_t padding = 0;  // 0, 1 or 2
  bool relu = false;
  bool pool = false;  // followed by a 2x2 max pool, stride 2
  // Makes backward multiply in bfloat16 (pair_products.h); for bfloat16 only. Forward never does,
  // because its rounding errors would grow too much.
  bool pairs = false;

  static constexpr std::size_t kTile = 4, kPlanes = 36;

  std::size_t output_height() const { return height + 2 * padding - 2; }
  std::size_t output_width() const { return width + 2 * padding - 2; }
  std::size_t tiles_down() const { return (output_height() + kTile - 1) / kTile; }
  std::size_t tiles_across() const { return (output_width() + kTile - 1) / kTile; }
  std::size_t tiles() const { return tiles_down() * tiles_across(); }
  // Returns the size of the image with its padding, and zeros up to whole tiles.
  std::size_t padded_height() const { return kTile * tiles_down() + 2; }
  std::size_t padded_width() const { return kTile * tiles_across() + 2; }
  bool whole() const { return padded_height() == height && padded_width() == width; }
  std::size_t inputs() const { return height * width * channels; }
  std::size_t outputs() const {  // stored outputs
    return pool ? (output_height() / 2) * (output_width() / 2) * filters
                : output_height() * output_width() * filters;
  }
  // Returns the distance between planes of weights in floats. It has two extra cache lines, because
  // planes a power of two apart would collide in the caches.
  std::size_t plane() const { return channels * filters + 32; }
  std::size_t plane_weights() const { return kPlanes * plane(); }

  // Returns the tiles of a block: few enough to keep the block's transformed values in the L2
  // cache, but enough that large weights, and in backward their sums, are read rarely. A multiple
  // of 12, as the products require.
  std::size_t forward_block() const {
    if (plane_weights() > std::size_t{4} << 20) return 96;
    const std::size_t fit = (std::size_t{512} << 10) / (kPlanes * (channels + filters) * 4);
    return std::clamp<std::size_t>((fit + 6) / 12, 2, 16) * 12;
  }
  std::size_t block() const {
    return plane_weights() > std::size_t{1} << 20 ? 96 : forward_block();
  }
  // Returns the distance between planes in floats. The extra lines keep planes apart in the caches.
  std::size_t input_stride() const { return block() * channels + 32; }
  std::size_t output_stride() const { return block() * filters + 32; }
  std::size_t padded_image() const { return padded_height() * padded_width() * channels; }
  // Returns the floats of scratch that a call needs, aligned to 64 bytes.
  std::size_t scratch() const {
    return kPlanes * (input_stride() + output_stride()) + 2 * (padded_image() + 16);
  }
};

// Transforms w to the planes that forward (`forward`) and the gradient of the input (`backward`)
// read, plane_weights() floats each; either may be null.
template <class T>
void winograd_weights(const WinogradShape& shape, const T* w, float* forward, float* backward);

// Computes y = relu(x * w + bias), then pools it if `pool`. `places` receives one byte per output:
// the position of the first maximum in its window, or 4 if ReLU cut it. `bias` may be null.
template <class T>
struct WinogradForward {
  std::size_t images = 0;
  const T* x = nullptr;
  const float* weights = nullptr;  // planes
  const T* bias = nullptr;
  T* y = nullptr;
  std::uint8_t* places = nullptr;
  float* scratch = nullptr;
};
void winograd_forward(const WinogradShape& shape, const WinogradForward<float>& call);
void winograd_forward(const WinogradShape& shape, const WinogradForward<BFloat16>& call);

// Adds to `sums` (plane_weights() floats) and `bias` (filters), and writes dx. Each may be null.
// Takes at least one image.
template <class T>
struct WinogradBackward {
  std::size_t images = 0;
  const T* x = nullptr;
  const T* y = nullptr;                  // forward's, if `relu` and not `pool`
  const std::uint8_t* places = nullptr;  // if `pool`
  const T* dy = nullptr;
  const float* weights = nullptr;  // backward's planes
  T* dx = nullptr;
  float* sums = nullptr;
  bool fresh = false;  // overwrites `sums`
  float* bias = nullptr;
  float* scratch = nullptr;
};
// Returns whether backward may multiply by pairs: with AVX-512, on processors with pair products.
bool winograd_has_pairs();
void winograd_backward(const WinogradShape& shape, const WinogradBackward<float>& call);
void winograd_backward(const WinogradShape& shape, const WinogradBackward<BFloat16>& call);

// Computes dw, [filters, 3, 3, channels], from the sums of backward. If `accumulate`, it adds the
// previous values before rounding.
template <class T>
void winograd_gradient(const WinogradShape& shape, const float* sums, T* dw, bool accumulate);

}  // namespace lockstep::engine::cpu
