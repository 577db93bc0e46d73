// SPDX-License-Identifier: MIT
// Arguments of the two sums whose bits engine/ops/definitions.h fixes for all devices. Addresses
// are the GPU's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// The sum of the rows in use, as balanced_sum has it: of one batch or two, each by a block of
// kThreads.
struct BatchSum {
  static constexpr const char* kName = "batch_sum";
  static constexpr unsigned kThreads = 256;  // a power of two
  const StepState* state;
  const double* rows[2];
  double* sums;  // may be memory of the host that the GPU reaches
};

// Adds to *sum, which must have been set, the checksum of some bytes. Any grid.
struct Checksum {
  static constexpr const char* kName = "checksum";
  const void* data;
  std::size_t bytes;
  std::size_t offset;  // words of 4 bytes before `data`
  std::uint64_t* sum;
};

// Adds to sums[i] the checksum of range i. Column i of the grid, of kRows blocks, does it.
struct Checksums {
  static constexpr const char* kName = "checksums";
  static constexpr unsigned kRows = 2;
  const void* data;
  const std::size_t* ranges;  // begin and end of each, in elements ...
  std::size_t width;          // ... of so many bytes
  std::uint64_t* sums;
};

using SumsKernels = std::tuple<BatchSum, Checksum, Checksums>;

}  // namespace lockstep::engine::cuda
