// SPDX-License-Identifier: MIT
// Gradients of biases, which are sums of dy over rows in use and positions, and the gradient of a
// fused ReLU before them. Pointers are GPU addresses of arrays of the module's element type, except
// for the partial sums. engine/cuda/kernels/lines.h defines lines and grids.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/lines.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Writes the sums into db, or adds them to it. Blocks: sum_tiles(groups) by partials.chunks.
struct ColumnSums {
  static constexpr const char* kName = "column_sums";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void* dy = nullptr;
  Partials partials = {};  // one sum per channel
  void* db = nullptr;
  bool accumulate = false;
};

// Sets dy to zero where the output y is not above 0. Any grid.
struct MaskGradient {
  static constexpr const char* kName = "mask_gradient";
  const StepState* state = nullptr;
  std::size_t columns = 1;  // elements of a row
  const void* y = nullptr;
  void* dy = nullptr;
};

using ColumnSumsKernels = std::tuple<ColumnSums, MaskGradient>;

}  // namespace lockstep::engine::cuda
