// SPDX-License-Identifier: MIT
// Kernel arguments of the two sums whose bits engine/ops/definitions.h defines for all devices.
// Addresses are GPU addresses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Computes the sum of the rows in use like balanced_sum, for one batch or two. Each batch takes a
// block of kThreads.
struct BatchSum {
  static constexpr const char* kName = "batch_sum";
  static constexpr unsigned kThreads = 256;  // a power of two
  const StepState* state;
  const double* rows[2];
  double* sums;  // may be host memory that the GPU accesses
};

// Adds the checksum of some bytes to *sum, which must be initialized. Any grid.
struct Checksum {
  static constexpr const char* kName = "checksum";
  const void* data;
  std::size_t bytes;
  std::size_t offset;  // 4-byte words before `data`
  std::uint64_t* sum;
};

// Adds the checksum of range i to sums[i], with kRows blocks in column i of the grid.
struct Checksums {
  static constexpr const char* kName = "checksums";
  static constexpr unsigned kRows = 2;
  const void* data;
  const std::size_t* ranges;  // begin and end of each, in elements ...
  std::size_t width;          // ... of `width` bytes
  std::uint64_t* sums;
};

using SumsKernels = std::tuple<BatchSum, Checksum, Checksums>;

}  // namespace lockstep::engine::cuda
