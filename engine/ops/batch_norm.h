// SPDX-License-Identifier: MIT
// Batch normalization (Ioffe and Szegedy 2015): normalizes each channel to mean 0 and variance 1
// over all rows and positions of a batch, then scales and shifts it by two parameters. The kernels
// fuse the sum with a second input and ReLU; for backward, ReLU keeps one bit per element. The
// second input may itself be normalized in the same pass (a pair, as at the end of a residual block
// with a batch norm in its shortcut); `other` below is then its normalized value. Plain values;
// statistics are float64, in the memory of operands.
//   mean, variance  of a channel over all rows in use and positions (the biased variance)
//   deviation       1 / sqrt(variance + epsilon);  xhat = (x - mean) deviation
//   y = activation(xhat scale + shift + other)
//   g = dy if the activation let it pass, else 0;  dother = g
//   dshift = sum of g;  dscale = sum of g xhat
//   dx = scale deviation (g - (sum of g) / n - xhat (sum of g xhat) / n);  n = rows x positions
// The sums of forward and of dx span all replicas if statistics are synchronized. Those of dscale
// and dshift are the replica's own.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/ops/step_state.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

enum class Activation : std::uint8_t { kNone, kRelu };

struct BatchNormSpec {
  std::size_t positions = 1;  // height x width of a row
  std::size_t channels = 1;
  double epsilon = 1e-5;
  Activation activation = Activation::kNone;

  std::size_t columns() const { return positions * channels; }
  // Returns the length of the sums of forward: of x, of its squares, and their count.
  std::size_t sums() const { return 2 * channels + 1; }
  // Returns the length of the sums of backward.
  std::size_t gradient_sums() const { return 2 * channels; }
  // Returns the length of the moments: means, then deviations.
  std::size_t moments() const { return 2 * channels; }
  // Returns the bytes of a row's ReLU mask; 0 without ReLU. Bit i % 8 of byte i / 8 belongs to
  // element i and is set if ReLU let it pass.
  std::size_t mask_of_row() const {
    return activation == Activation::kRelu ? (columns() + 7) / 8 : 0;
  }
  bool operator==(const BatchNormSpec&) const = default;
};

struct BatchNormForward {
  Tensor x, scale, shift;
  Tensor other = {};  // added before the activation; empty: nothing
  Tensor y = {};      // may alias x or other
  const double* moments = nullptr;
  std::uint8_t* mask = nullptr;  // written if there is an activation
  // Moments that normalize `other` before it is added; null: it is added unchanged.
  const double* other_moments = nullptr;
  Tensor other_scale = {}, other_shift = {};
};

struct BatchNormBackward {
  Tensor x, dy, scale;
  Tensor dx = {}, dother = {};  // empty: not wanted; either may alias dy
  const double* moments = nullptr;
  const std::uint8_t* mask = nullptr;
  const double* sums = nullptr;  // gradient_sums() numbers; null: the moments are constants
  // n of `sums`, at least 1. It may be null if `sums` is.
  const double* count = nullptr;
};

// Holds the results of backward's sums.
struct BatchNormGradients {
  double* sums = nullptr;           // gradient_sums() numbers
  Tensor dscale = {}, dshift = {};  // empty: not wanted
};

// The two batch norms of a pair. They share dy and mask, and have no dother.
using BatchNormPair = std::array<BatchNormBackward, 2>;

// Arguments that turn the sums of forward into moments and n, and update the moving averages if
// there are any: average = keep average + (1 - keep) value, for the mean and the unbiased variance.
// If n is 0, the averages stay unchanged. A NaN value makes the mean NaN, and thereby every output,
// whatever the variance.
struct BatchNormMoments {
  const double* sums = nullptr;
  double* moments = nullptr;
  double* count = nullptr;     // at least 1
  double* averages = nullptr;  // means, then variances; may be null
  double keep = 0;
};

}  // namespace lockstep::engine
