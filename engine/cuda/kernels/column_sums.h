// SPDX-License-Identifier: MIT
// Gradients of biases: sums of dy over rows in use and positions, where a fused ReLU let it pass
// (where its output y is above 0). Pointers are addresses of the GPU, to arrays of the module's
// type but for the partial sums. Lines and grids are those of engine/cuda/kernels/lines.h.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/lines.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Written into db, or added to it. y null: all of dy counts. With `masks` what ReLU did not let
// pass becomes zero in dy besides, for the kernels that read it next; then y is there. Blocks:
// sum_tiles(groups) by partials.chunks.
struct ColumnSums {
  static constexpr const char* kName = "column_sums";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void* y = nullptr;
  void* dy = nullptr;
  bool masks = false;
  Partials partials = {};  // of one sum
  void* db = nullptr;
  bool accumulate = false;
};

// dy becomes zero where y is not above 0, where nobody wants sums. Any grid.
struct MaskGradient {
  static constexpr const char* kName = "mask_gradient";
  const StepState* state = nullptr;
  std::size_t columns = 1;  // elements of a row
  const void* y = nullptr;
  void* dy = nullptr;
};

using ColumnSumsKernels = std::tuple<ColumnSums, MaskGradient>;

}  // namespace lockstep::engine::cuda
