// SPDX-License-Identifier: MIT
// Arguments of kernels that copy or clear rows of a batch of any element type. They count bytes.
// Addresses are GPU addresses. Any grid gives the same result. Accesses have 16 bytes if all sizes
// and addresses are multiples of 16.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Copies the rows in use of x to y. x may be y's memory.
struct CopyRows {
  static constexpr const char* kName = "copy_rows";
  const StepState* state;
  const void* x;
  void* y;
  std::size_t row_bytes;
};

// Sets the rows in use to zero.
struct ClearRows {
  static constexpr const char* kName = "clear_rows";
  const StepState* state;
  void* y;
  std::size_t row_bytes;
};

// Sets all rows after those in use to zero, up to the `rows` that were planned.
struct ClearRest {
  static constexpr const char* kName = "clear_rest";
  const StepState* state;
  void* y;
  std::size_t row_bytes;
  std::size_t rows;
};

// Copies bytes [from, from + count) of each row in use of x to bytes [to, to + count) of y. Sizes
// and addresses are multiples of the size of the module's element type.
struct CopyColumns {
  static constexpr const char* kName = "copy_columns";
  const StepState* state;
  const void* x;
  std::size_t x_row_bytes, from;
  void* y;
  std::size_t y_row_bytes, to;
  std::size_t count;
};

using RowsKernels = std::tuple<CopyRows, ClearRows, ClearRest, CopyColumns>;

}  // namespace lockstep::engine::cuda
