// SPDX-License-Identifier: MIT
// Arguments of kernels that move or clear rows of a batch, of any element type: they count bytes.
// Addresses are the GPU's. Any grid gives the same; accesses are of 16 bytes where everything is a
// multiple of that.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// The rows in use of y become those of x, which may be y's memory.
struct CopyRows {
  static constexpr const char* kName = "copy_rows";
  const StepState* state;
  const void* x;
  void* y;
  std::size_t row_bytes;
};

// The rows in use become zero.
struct ClearRows {
  static constexpr const char* kName = "clear_rows";
  const StepState* state;
  void* y;
  std::size_t row_bytes;
};

// All rows behind those in use, of the `rows` that were planned, become zero.
struct ClearRest {
  static constexpr const char* kName = "clear_rest";
  const StepState* state;
  void* y;
  std::size_t row_bytes;
  std::size_t rows;
};

// Bytes [from, from + count) of each row in use of x become bytes [to, to + count) of y. All are
// multiples of the size of the module's element type, and addresses too.
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
