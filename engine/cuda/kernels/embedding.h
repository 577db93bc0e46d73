// SPDX-License-Identifier: MIT
// Arguments of the kernels for rows of a table (engine/ops/ops.h has what they compute). A pick is
// one field of one example; picks count example by example. Addresses are the GPU's. Any grid gives
// the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/cuda/kernels/problem.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Ids to rows of the table. A number that is no id gives row f * rows.
struct EmbeddingRows {
  static constexpr const char* kName = "embedding_rows";
  const StepState* state;
  const void* x;          // [examples, columns], of the element type
  std::size_t columns;    // of x
  std::size_t first;      // column of ids
  std::size_t fields;     // columns of ids
  std::size_t rows;       // of each field
  std::uint32_t* places;  // [examples, fields]
  Problem* problem;       // the first pick whose number is no id
};

// y is the rows picked, or, where `sum`, each example's sum of them, in the order of the fields.
struct EmbeddingForward {
  static constexpr const char* kName = "embedding_forward";
  const StepState* state;
  const std::uint32_t* places;
  const void* w;
  void* y;
  std::size_t fields;
  std::size_t columns;  // of the table
  bool sum;
};

// Of each row that was picked, the sum of its gradients in float32, in the order of the picks,
// from 0 or, where `accumulate`, from what is there. Other rows are left alone. A block goes
// through all picks for each pick that is the first of its row, with a thread for a column: the
// grid's second extent shares the columns. Costs picks^2 comparisons, threads() at a time, where
// all rows are different; few where few rows are picked.
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  const StepState* state;
  const std::uint32_t* places;
  const void* dy;
  void* dw;
  std::size_t fields;
  std::size_t columns;  // of the table
  bool sum;
  bool accumulate;
};

using EmbeddingKernels = std::tuple<EmbeddingRows, EmbeddingForward, EmbeddingBackward>;

}  // namespace lockstep::engine::cuda
