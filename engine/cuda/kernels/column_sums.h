// SPDX-License-Identifier: MIT
// Gradients of biases, the sums of dy over rows in use and positions, and before these what a fused
// ReLU does to dy. Pointers are addresses of the GPU, to arrays of the module's
// type but for the partial sums. Lines and grids are those of engine/cuda/kernels/lines.h.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/lines.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Written into db, or added to it. Blocks: sum_tiles(groups) by partials.chunks.
struct ColumnSums {
  static constexpr const char* kName = "column_sums";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void* dy = nullptr;
  Partials partials = {};  // of one sum
  void* db = nullptr;
  bool accumulate = false;
};

// dy becomes zero where the output y is not above 0. Any grid.
struct MaskGradient {
  static constexpr const char* kName = "mask_gradient";
  const StepState* state = nullptr;
  std::size_t columns = 1;  // elements of a row
  const void* y = nullptr;
  void* dy = nullptr;
};

using ColumnSumsKernels = std::tuple<ColumnSums, MaskGradient>;

}  // namespace lockstep::engine::cuda
