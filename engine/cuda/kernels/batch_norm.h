// SPDX-License-Identifier: MIT
// Kernel arguments of batch normalization on a GPU (engine/ops/batch_norm.h has the formulas).
// Pointers are GPU addresses. Batches, scale, shift and their gradients have the module's element
// type; statistics are float64. engine/cuda/kernels/lines.h defines lines and grids. Sums and
// elementwise kernels run on line_tiles(channels) blocks, moments on one thread per channel. `mask`
// has one bit per element, each row begins in a new byte, and it is null without ReLU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/cuda/kernels/lines.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Computes means and deviations from the sums of values, the sums of squares and the number of
// values. `count` receives that number, at least 1. Moving averages, if any, keep the fraction
// `keep` of themselves and take the rest from the new mean and unbiased variance. Without values
// they do not change.
struct BatchNormFindMoments {
  static constexpr const char* kName = "batch_norm_moments";
  std::size_t channels = 1;
  double epsilon = 0;
  const double* sums = nullptr;
  double* moments = nullptr;
  double* count = nullptr;
  double* averages = nullptr;
  double keep = 0;
};

// Computes the sums of x, the sums of squares, and the number of values: 2 * channels + 1 numbers.
// Also finds their moments if find.moments is not null.
struct BatchNormSums {
  static constexpr const char* kName = "batch_norm_sums";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void* x = nullptr;
  Partials partials = {};  // two sums per channel
  double* sums = nullptr;
  BatchNormFindMoments find = {};
};

// Computes means and deviations from moving averages.
struct BatchNormFixedMoments {
  static constexpr const char* kName = "batch_norm_fixed_moments";
  std::size_t channels = 1;
  double epsilon = 0;
  const double* averages = nullptr;
  double* moments = nullptr;
};

// Computes y, which may overlap x or other, and the mask. If `other` is null, nothing is added.
struct BatchNormApply {
  static constexpr const char* kName = "batch_norm_forward";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void *x = nullptr, *other = nullptr, *scale = nullptr, *shift = nullptr;
  const double* moments = nullptr;
  void* y = nullptr;
  std::uint8_t* mask = nullptr;
};

// Computes the sums of g and of g xhat (2 * channels numbers). Writes the gradients of the
// parameters, or adds to them; null: not wanted.
struct BatchNormGradientSums {
  static constexpr const char* kName = "batch_norm_gradient_sums";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void *x = nullptr, *dy = nullptr;
  const double* moments = nullptr;
  const std::uint8_t* mask = nullptr;
  Partials partials = {};  // two sums per channel
  double* sums = nullptr;
  void *dscale = nullptr, *dshift = nullptr;
  bool accumulate = false;
};

// Computes dx and dother; null: not wanted. Either may overlap dy. If `sums` is null, the moments
// are constants; else *count is the n of these sums.
struct BatchNormBackpropagate {
  static constexpr const char* kName = "batch_norm_backward";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void *x = nullptr, *dy = nullptr, *scale = nullptr;
  const double* moments = nullptr;
  const std::uint8_t* mask = nullptr;
  const double *sums = nullptr, *count = nullptr;
  void *dx = nullptr, *dother = nullptr;
};

// The same for the two batch norms of a pair in one pass. `second` holds x, parameters, moments and
// results of the second batch norm.
struct BatchNormPairApply : BatchNormApply {
  static constexpr const char* kName = "batch_norm_pair_forward";
  BatchNormApply second = {};
};
// Partials hold three sums.
struct BatchNormPairGradientSums : BatchNormGradientSums {
  static constexpr const char* kName = "batch_norm_pair_gradient_sums";
  BatchNormGradientSums second = {};
};
struct BatchNormPairBackpropagate : BatchNormBackpropagate {
  static constexpr const char* kName = "batch_norm_pair_backward";
  BatchNormBackpropagate second = {};
};

using BatchNormKernels =
    std::tuple<BatchNormSums, BatchNormFindMoments, BatchNormFixedMoments, BatchNormApply,
               BatchNormGradientSums, BatchNormBackpropagate, BatchNormPairApply,
               BatchNormPairGradientSums, BatchNormPairBackpropagate>;

}  // namespace lockstep::engine::cuda
