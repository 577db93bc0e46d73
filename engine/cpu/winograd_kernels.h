// SPDX-License-Identifier: MIT
// Own kernels for 3x3 convolutions of stride 1, by Winograd's F(4x4, 3x3): each tile of 4x4 outputs
// is computed from a tile of 6x6 inputs with 36 products a channel pair where the direct method
// takes 144. Backward is the adjoint of the same algorithm. Compiled for each instruction set and
// chosen as the program runs. Source: Lavin and Gray, Fast Algorithms for Convolutional Neural
// Networks (2016).
//
// Channels and filters are multiples of 16; images NHWC, of T, float or BFloat16; weights [filters,
// 3, 3, channels] of T. What is multiplied and summed is float32 with either, but for backward with
// `pairs`. The 36 planes of transformed weights lie in panels of a few vectors of columns, as the
// products read them: `winograd_weights` writes them, nobody else looks inside. Pure functions; any
// thread.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/base/bfloat16.h"

namespace lockstep::engine::cpu {

struct WinogradShape {
  std::size_t height = 0, width = 0, channels = 0;  // of the input
  std::size_t filters = 0;
  std::size_t padding = 0;  // 0, 1 or 2
  bool relu = false;
  bool pool = false;  // a max pool of 2x2 windows, stride 2, follows
  // Of bfloat16: backward multiplies in bfloat16 (pair_products.h). Forward never does, for its
  // rounding errors grow too much.
  bool pairs = false;

  static constexpr std::size_t kTile = 4, kPlanes = 36;

  std::size_t output_height() const { return height + 2 * padding - 2; }
  std::size_t output_width() const { return width + 2 * padding - 2; }
  std::size_t tiles_down() const { return (output_height() + kTile - 1) / kTile; }
  std::size_t tiles_across() const { return (output_width() + kTile - 1) / kTile; }
  std::size_t tiles() const { return tiles_down() * tiles_across(); }
  // The image with its padding, and zeros up to whole tiles.
  std::size_t padded_height() const { return kTile * tiles_down() + 2; }
  std::size_t padded_width() const { return kTile * tiles_across() + 2; }
  bool whole() const { return padded_height() == height && padded_width() == width; }
  std::size_t inputs() const { return height * width * channels; }
  std::size_t outputs() const {  // that are stored
    return pool ? (output_height() / 2) * (output_width() / 2) * filters
                : output_height() * output_width() * filters;
  }
  // From plane to plane of weights; two lines more than they are, for planes that lie a power of
  // two apart would fall on the same places of the caches.
  std::size_t plane() const { return channels * filters + 32; }
  std::size_t plane_weights() const { return kPlanes * plane(); }

  // Tiles go through in blocks: as many as keep the transformed values of a block in the second
  // cache, but enough that the weights are read rarely where they are many, and in backward their
  // sums too. A multiple of 12, as the products want.
  std::size_t forward_block() const {
    if (plane_weights() > std::size_t{4} << 20) return 96;
    const std::size_t fit = (std::size_t{512} << 10) / (kPlanes * (channels + filters) * 4);
    return std::clamp<std::size_t>((fit + 6) / 12, 2, 16) * 12;
  }
  std::size_t block() const {
    return plane_weights() > std::size_t{1} << 20 ? 96 : forward_block();
  }
  // From plane to plane, in floats; the odd lines keep the planes apart in the caches.
  std::size_t input_stride() const { return block() * channels + 32; }
  std::size_t output_stride() const { return block() * filters + 32; }
  std::size_t padded_image() const { return padded_height() * padded_width() * channels; }
  // Floats that a call needs beside its operands, aligned to 64 bytes.
  std::size_t scratch() const {
    return kPlanes * (input_stride() + output_stride()) + 2 * (padded_image() + 16);
  }
};

// w to the planes that forward (`forward`) and the gradient of the input (`backward`) read,
// plane_weights() floats each; either may be null.
template <class T>
void winograd_weights(const WinogradShape& shape, const T* w, float* forward, float* backward);

// y = relu(x * w + bias), then pooled where `pool`: `places` gets one byte for each output, the
// number of the first largest in its window, or 4 where ReLU cut it. `bias` may be null.
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

// Adds to `sums` (plane_weights() floats) and `bias` (filters), writes dx. Each may be null. At
// least one image.
template <class T>
struct WinogradBackward {
  std::size_t images = 0;
  const T* x = nullptr;
  const T* y = nullptr;                  // of forward, where `relu` and not `pool`
  const std::uint8_t* places = nullptr;  // where `pool`
  const T* dy = nullptr;
  const float* weights = nullptr;  // planes of backward
  T* dx = nullptr;
  float* sums = nullptr;
  bool fresh = false;  // writes `sums`
  float* bias = nullptr;
  float* scratch = nullptr;
};
// Whether backward may multiply by pairs: in AVX-512, on processors that have products of them.
bool winograd_has_pairs();
void winograd_backward(const WinogradShape& shape, const WinogradBackward<float>& call);
void winograd_backward(const WinogradShape& shape, const WinogradBackward<BFloat16>& call);

// dw, [filters, 3, 3, channels], from the sums of backward; added to what is there where
// `accumulate`, and rounded then.
template <class T>
void winograd_gradient(const WinogradShape& shape, const float* sums, T* dw, bool accumulate);

}  // namespace lockstep::engine::cpu
