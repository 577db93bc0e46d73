// SPDX-License-Identifier: MIT
// Batch normalisation on a GPU (engine/ops/batch_norm.h has the formulas): arguments of its
// kernels. Pointers are addresses of the GPU; batches, scale, shift and their gradients are arrays
// of the module's type, statistics are float64. Lines and grids are those of
// engine/cuda/kernels/lines.h: sums and element-wise kernels run on line_tiles(channels) blocks,
// moments on as many threads as there are channels. `mask` has one bit for each element, each row's
// from a new byte on, and is null without ReLU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/cuda/kernels/lines.h"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Means and deviations of sums of values, of their squares, and how many; `count` becomes how many
// values they are of, at least 1. Where there are averages they follow: the part `keep` of them
// stays, the rest is the new mean and unbiased variance. Of no values they learn nothing.
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

// Sums of the values of x, of their squares, and how many: 2 * channels + 1 numbers; and of these
// the moments, where find.moments is not null.
struct BatchNormSums {
  static constexpr const char* kName = "batch_norm_sums";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void* x = nullptr;
  Partials partials = {};  // of two sums
  double* sums = nullptr;
  BatchNormFindMoments find = {};
};

// Means and deviations of averages.
struct BatchNormFixedMoments {
  static constexpr const char* kName = "batch_norm_fixed_moments";
  std::size_t channels = 1;
  double epsilon = 0;
  const double* averages = nullptr;
  double* moments = nullptr;
};

// y, which may be the memory of x or of other, and the mask. other null: nothing is added.
struct BatchNormApply {
  static constexpr const char* kName = "batch_norm_forward";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void *x = nullptr, *other = nullptr, *scale = nullptr, *shift = nullptr;
  const double* moments = nullptr;
  void* y = nullptr;
  std::uint8_t* mask = nullptr;
};

// Sums of g and of g xhat: 2 * channels numbers, and of these the gradients of the parameters
// (null: not wanted), which are written, or added to.
struct BatchNormGradientSums {
  static constexpr const char* kName = "batch_norm_gradient_sums";
  const StepState* state = nullptr;
  std::size_t positions = 1, channels = 1;
  const void *x = nullptr, *dy = nullptr;
  const double* moments = nullptr;
  const std::uint8_t* mask = nullptr;
  Partials partials = {};  // of two sums
  double* sums = nullptr;
  void *dscale = nullptr, *dshift = nullptr;
  bool accumulate = false;
};

// dx and dother; null: not wanted. Either may be the memory of dy. `sums` null: the moments are
// constants; else *count is n of these sums.
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

// The same for the two batch norms of a pair, in one pass. `second` has what differs: of the second
// batch norm x, its parameters, moments and results.
struct BatchNormPairApply : BatchNormApply {
  static constexpr const char* kName = "batch_norm_pair_forward";
  BatchNormApply second = {};
};
// Partials are of three sums.
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
