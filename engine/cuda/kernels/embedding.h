// SPDX-License-Identifier: MIT
// Kernel arguments of embeddings (engine/ops/ops.h defines the results). A pick is one field of one
// example; picks are numbered example by example. Addresses are GPU addresses. Results do not
// depend on the grid.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/cuda/kernels/problem.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Converts IDs to rows of the table. A number that is not an ID gives row f * rows.
struct EmbeddingRows {
  static constexpr const char* kName = "embedding_rows";
  const StepState* state;
  const void* x;          // [examples, columns], element type
  std::size_t columns;    // columns of x
  std::size_t first;      // column of the first ID
  std::size_t fields;     // number of ID columns
  std::size_t rows;       // rows per field
  std::uint32_t* places;  // [examples, fields]
  Problem* problem;       // first pick whose number is not an ID
};

// Computes y: the picked rows or, if `sum`, their sum per example in the order of the fields.
struct EmbeddingForward {
  static constexpr const char* kName = "embedding_forward";
  const StepState* state;
  const std::uint32_t* places;
  const void* w;
  void* y;
  std::size_t fields;
  std::size_t columns;  // columns of the table
  bool sum;
};

// Computes for each picked row the float32 sum of its gradients, in the order of the picks. The sum
// starts from 0, or from the existing value if `accumulate`. Other rows do not change. For each
// pick that is the first of its row, a block scans all picks, with one thread per column; the
// second dimension of the grid divides the columns. Costs picks^2 comparisons, threads() at a time,
// if all rows differ, and few if few rows are picked.
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  const StepState* state;
  const std::uint32_t* places;
  const void* dy;
  void* dw;
  std::size_t fields;
  std::size_t columns;  // columns of the table
  bool sum;
  bool accumulate;
};

using EmbeddingKernels = std::tuple<EmbeddingRows, EmbeddingForward, EmbeddingBackward>;

}  // namespace lockstep::engine::cuda
