// SPDX-License-Identifier: MIT
// Kernel arguments of the losses (engine/ops/ops.h defines the results). A warp processes a row.
// Sums run lane by lane in a fixed order, so any grid gives the same bits. Exponentials are
// float32, sums and losses float64. Addresses are GPU addresses; those marked "may be null" are
// then not wanted. A gradient may overwrite its variable.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/cuda/kernels/problem.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

struct SoftmaxCrossEntropy {
  static constexpr const char* kName = "softmax_cross_entropy";
  const StepState* state;
  const void* logits;   // [rows, classes]
  const float* target;  // [rows]; the class
  void* dlogits;        // may be null
  double* losses;       // [rows]; may be null
  double* correct;      // [rows]; may be null
  std::size_t classes;
  double smoothing;
  Problem* problem;  // first row whose target is not a class
};

struct SquaredError {
  static constexpr const char* kName = "squared_error";
  const StepState* state;
  const void* y;        // [rows, columns]
  const float* target;  // [rows, columns]
  void* dy;             // may be null
  double* losses;       // [rows]; may be null
  std::size_t columns;
};

struct Softmax {
  static constexpr const char* kName = "softmax";
  const StepState* state;
  const void* logits;   // [rows, classes]
  void* probabilities;  // may be the memory of the logits
  std::size_t classes;
};

using LossesKernels = std::tuple<SoftmaxCrossEntropy, SquaredError, Softmax>;

}  // namespace lockstep::engine::cuda
