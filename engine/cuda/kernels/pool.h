// SPDX-License-Identifier: MIT
// Kernel arguments of pooling of NHWC images. Pointers are GPU addresses of arrays of the module's
// element type. Any grid works: a block processes the images block_row(), block_row() +
// block_rows(), ..., and a thread processes kPack neighboring channels or one. pool_blocks covers
// an image with one item per thread and 256 threads per block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Holds engine::PoolSpec and derived sizes, in a type that is fast to divide.
struct PoolSizes {
  bool largest = true;  // else the average, which ignores padding
  unsigned height = 0, width = 0, channels = 0;
  unsigned output_height = 0, output_width = 0;
  unsigned kernel_height = 2, kernel_width = 2;
  unsigned stride = 2, padding = 0;
  bool relu = false;  // max only: no winner unless above 0
};

// The type of `places` of max pooling: the index of each output's winner in its window, row by row.
// PoolPlace suffices for small windows, LargePoolPlace for others. The largest value of either type
// means no pixel.
using PoolPlace = std::uint8_t;
using LargePoolPlace = std::uint32_t;
constexpr bool small_places(std::size_t pixels) {
  return pixels < 256;
}
struct PoolForward {
  static constexpr const char* kName = "pool_forward";
  const StepState* state = nullptr;
  PoolSizes sizes;
  const void* x = nullptr;
  void* y = nullptr;
  void* places = nullptr;
};

// Writes all of dx in the rows in use.
struct PoolBackward {
  static constexpr const char* kName = "pool_backward";
  const StepState* state = nullptr;
  PoolSizes sizes;
  const void* dy = nullptr;
  void* dx = nullptr;
  const void* places = nullptr;
};

// The remaining kernels require windows of 2 x 2 or 3 x 3 with stride 2, and whole groups of 8
// channels. Addresses are aligned to 16 bytes. A thread computes one output; in the backward pass
// it computes 2 x 2 inputs, which at most 2 x 2 windows cover.
struct QuadPoolForward : PoolForward {
  static constexpr const char* kName = "quad_pool_forward";
};
struct QuadPoolBackward : PoolBackward {
  static constexpr const char* kName = "quad_pool_backward";
};
struct NinePoolForward : PoolForward {
  static constexpr const char* kName = "nine_pool_forward";
};
struct NinePoolBackward : PoolBackward {
  static constexpr const char* kName = "nine_pool_backward";
};
constexpr bool pools_by_two(const PoolSizes& s) {
  return s.largest && s.stride == 2 && s.kernel_height == s.kernel_width &&
         (s.kernel_width == 2 || s.kernel_width == 3) && s.channels % 8 == 0 &&
         std::size_t(s.height + s.padding) * (s.width + s.padding) * s.channels <= 0xffffffff;
}
// Returns how many pairs of inputs an axis of the padded image has.
constexpr unsigned input_pairs(unsigned extent, unsigned padding) {
  return (extent + padding + 1) / 2;
}

constexpr unsigned kPoolThreads = 256;
// Returns the blocks for `elements` of an image with `channels` channels.
constexpr unsigned pool_blocks(std::size_t elements, std::size_t channels) {
  const std::size_t items = channels % 8 == 0 ? elements / 8 : elements;
  return unsigned((items + kPoolThreads - 1) / kPoolThreads);
}

using PoolKernels = std::tuple<PoolForward, PoolBackward, QuadPoolForward, QuadPoolBackward,
                               NinePoolForward, NinePoolBackward>;

}  // namespace lockstep::engine::cuda
