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

// By chunks: `partial` is `channels` numbers for each. y null: all of dy counts. With `masks` what
// ReLU did not let pass becomes zero in dy besides, for the kernels that read it next; then y is
// there. Blocks: line_tiles(channels) by `chunks`.
struct ColumnSums {
  static constexpr const char* kName = "column_sums";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void* y = nullptr;
  void* dy = nullptr;
  bool masks = false;
  unsigned chunks = 1;
  double* partial = nullptr;
};

// Written into db, or added to it. Blocks: finish_blocks(channels).
struct ColumnSumsFinish {
  static constexpr const char* kName = "column_sums_finish";
  std::size_t channels = 1;
  unsigned chunks = 1;
  const double* partial = nullptr;
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

using ColumnSumsKernels = std::tuple<ColumnSums, ColumnSumsFinish, MaskGradient>;

}  // namespace lockstep::engine::cuda
