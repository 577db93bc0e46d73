// SPDX-License-Identifier: MIT
// Pools of NHWC images: arguments of their kernels. Pointers are addresses of the GPU, to arrays of
// the module's type. Any grid; a block works on the images of its row, block_row(), block_row() +
// block_rows(), ..., a thread on kPack neighbouring channels or on one. What covers an image with
// one element a thread and 256 threads a block is pool_blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// engine::PoolSpec, with what follows from it, in numbers that are fast to divide.
struct PoolSizes {
  bool largest = true;  // else the average, which leaves padding out
  unsigned height = 0, width = 0, channels = 0;
  unsigned output_height = 0, output_width = 0;
  unsigned kernel_height = 2, kernel_width = 2;
  unsigned stride = 2, padding = 0;
  bool relu = false;  // of a largest pool: nobody wins where nothing is above 0
};

// `places`, of a largest pool: for each output the number of its winner in its window, row by row,
// as a PoolPlace; where windows have more pixels than that counts, as a LargePoolPlace. The largest
// of either is no pixel's.
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

// All of dx in the rows in use is written.
struct PoolBackward {
  static constexpr const char* kName = "pool_backward";
  const StepState* state = nullptr;
  PoolSizes sizes;
  const void* dy = nullptr;
  void* dx = nullptr;
  const void* places = nullptr;
};

// The same for windows of 2 x 2 and of 3 x 3, two pixels apart, of whole groups of 8 channels, at
// addresses that are aligned to 16 bytes. A thread makes an output; backward 2 x 2 inputs, which at
// most 2 x 2 windows cover.
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
// For `elements` of an image, of so many channels.
constexpr unsigned pool_blocks(std::size_t elements, std::size_t channels) {
  const std::size_t items = channels % 8 == 0 ? elements / 8 : elements;
  return unsigned((items + kPoolThreads - 1) / kPoolThreads);
}

using PoolKernels = std::tuple<PoolForward, PoolBackward, QuadPoolForward, QuadPoolBackward,
                               NinePoolForward, NinePoolBackward>;

}  // namespace lockstep::engine::cuda
