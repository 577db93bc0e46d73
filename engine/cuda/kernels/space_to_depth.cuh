// SPDX-License-Identifier: MIT
// The kernels of space_to_depth.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/space_to_depth.h"

namespace lockstep::engine::cuda {

// Describes the source of a channel of a deep pixel: the pixel in its block, and the channel.
struct SpaceToDepthPlace {
  unsigned dy, dx, channel;
  bool there;  // false for a padding channel
};
__device__ inline SpaceToDepthPlace space_to_depth_place(const SpaceToDepthSizes& s, unsigned of,
                                                         unsigned inverse) {
  const unsigned channels = unsigned(s.channels), pixel = of * inverse >> 16;
  return {pixel / 2, pixel % 2, of - pixel * channels, pixel < 4};
}
// Returns m such that n * m >> 16 equals n / channels for n < 256. This avoids a division.
__device__ inline unsigned inverse_of(const SpaceToDepthSizes& s) {
  return 65536 / unsigned(s.channels) + 1;
}

// A thread computes a group of channels of a deep pixel. Coordinates above or left of the image
// wrap.
template <class T>
__device__ void run(const SpaceToDepthImages& a) {
  const SpaceToDepthSizes& s = a.sizes;
  const T* const x = static_cast<const T*>(a.x);
  T* const deep = static_cast<T*>(a.deep);
  const unsigned inverse = inverse_of(s);
  const std::size_t groups = s.depth / kPack, count = a.rows * s.deep_height * s.deep_width;
  for (std::size_t i = first_index(); i < count * groups; i += index_stride()) {
    const auto [pixel, group] = divide(i, groups);
    const auto [line, bx] = divide(pixel, s.deep_width);
    const auto [row, by] = divide(line, s.deep_height);
    const bool used = row < std::size_t(a.state->examples);
    Pack<T, kPack> pack;
    repeat<kPack>([&](unsigned w) {
      const SpaceToDepthPlace place = space_to_depth_place(s, unsigned(group) * kPack + w, inverse);
      const std::size_t y = 2 * by + place.dy - s.padding, column = 2 * bx + place.dx - s.padding;
      const bool there = used && place.there && y < s.height && column < s.width;
      pack.values[w] =
          there ? x[((row * s.height + y) * s.width + column) * s.channels + place.channel]
                : narrow<T>(0.0f);
    });
    store(pack, deep + i * kPack, true);
  }
}

template <class T>
__device__ void run(const SpaceToDepthWeights& a) {
  const SpaceToDepthSizes& s = a.sizes;
  const unsigned inverse = inverse_of(s);
  const std::size_t height = (s.kernel_height + 1) / 2, width = (s.kernel_width + 1) / 2;
  for (std::size_t i = first_index(); i < s.filters * height * width * s.depth;
       i += index_stride()) {
    const auto [pixel, of] = divide(i, s.depth);
    const auto [line, jx] = divide(pixel, width);
    const auto [filter, jy] = divide(line, height);
    const SpaceToDepthPlace place = space_to_depth_place(s, unsigned(of), inverse);
    const std::size_t y = 2 * jy + place.dy, x = 2 * jx + place.dx;
    const bool there = place.there && y < s.kernel_height && x < s.kernel_width;
    static_cast<T*>(a.deep)[i] =
        there ? static_cast<const T*>(
                    a.w)[((filter * s.kernel_height + y) * s.kernel_width + x) * s.channels +
                         place.channel]
              : narrow<T>(0.0f);
  }
}

template <class T>
__device__ void run(const DepthToSpaceGradient& a) {
  const SpaceToDepthSizes& s = a.sizes;
  const std::size_t height = (s.kernel_height + 1) / 2, width = (s.kernel_width + 1) / 2;
  for (std::size_t i = first_index(); i < s.filters * s.kernel_height * s.kernel_width * s.channels;
       i += index_stride()) {
    const auto [pixel, channel] = divide(i, s.channels);
    const auto [line, x] = divide(pixel, s.kernel_width);
    const auto [filter, y] = divide(line, s.kernel_height);
    const std::size_t of = (y % 2 * 2 + x % 2) * s.channels + channel;
    const std::size_t from = ((filter * height + y / 2) * width + x / 2) * s.depth + of;
    static_cast<T*>(a.dw)[i] = static_cast<const T*>(a.deep)[from];
  }
}

}  // namespace lockstep::engine::cuda
