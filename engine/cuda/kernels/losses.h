// SPDX-License-Identifier: MIT
// Arguments of the losses (engine/ops/ops.h has what they compute). A warp takes a row; sums go
// lane by lane in a fixed order, so any grid gives the same bits. Exponentials are float32, sums
// and losses float64. Addresses are the GPU's; those that say so may be null: not wanted. A
// gradient may be the memory of what it is of.
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
  const float* target;  // [rows]: the class
  void* dlogits;        // may be null
  double* losses;       // [rows]; may be null
  double* correct;      // [rows]; may be null
  std::size_t classes;
  double smoothing;
  Problem* problem;  // the first row whose target is no class
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
