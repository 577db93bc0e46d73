// SPDX-License-Identifier: MIT
// Batch normalisation: each channel is brought to mean 0 and variance 1 over all rows and positions
// of a batch, then scaled and shifted by two parameters. Fused with what usually follows: the sum
// with a second input, and ReLU, of which backward keeps one bit an element instead of the output.
// The second input may itself be normalised in the same pass (a pair, as at the end of a residual
// block whose shortcut has a batch norm): then `other` below is its normalised value.
// Source: Ioffe and Szegedy 2015. Plain values; statistics are float64, in the memory of operands.
//
//   mean, variance  of a channel over all rows in use and positions (the biased variance)
//   deviation       1 / sqrt(variance + epsilon)
//   y = activation((x - mean) deviation scale + shift + other)
//   g = dy where the activation let it pass, else 0
//   dshift = sum of g;  dscale = sum of g (x - mean) deviation;  dother = g
//   dx = scale deviation (g - (sum of g) / n - (x - mean) deviation (sum of g xhat) / n)
//
// where n counts rows times positions. The sums of forward and of dx go over all replicas where
// statistics are synchronised; those of dscale and dshift are the replica's own.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/ops/step_state.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

enum class Activation : std::uint8_t { kNone, kRelu };

struct BatchNormSpec {
  std::size_t positions = 1;  // of a row: height x width
  std::size_t channels = 1;
  double epsilon = 1e-5;
  Activation activation = Activation::kNone;

  std::size_t columns() const { return positions * channels; }
  // Numbers that carry the sums of forward: of x, of its squares, how many; and of backward.
  std::size_t sums() const { return 2 * channels + 1; }
  std::size_t gradient_sums() const { return 2 * channels; }
  // Numbers of the moments: means, then deviations.
  std::size_t moments() const { return 2 * channels; }
  // Bytes of the bits of a row that ReLU let pass: bit i % 8 of byte i / 8 is element i's. None
  // without ReLU.
  std::size_t mask_of_row() const {
    return activation == Activation::kRelu ? (columns() + 7) / 8 : 0;
  }
  bool operator==(const BatchNormSpec&) const = default;
};

struct BatchNormForward {
  Tensor x, scale, shift;
  Tensor other = {};  // added before the activation; none: nothing
  Tensor y = {};      // may be the memory of x or of other
  const double* moments = nullptr;
  std::uint8_t* mask = nullptr;  // written where there is an activation
  // Normalises `other` before it is added; null: adds it as it is.
  const double* other_moments = nullptr;
  Tensor other_scale = {}, other_shift = {};
};

struct BatchNormBackward {
  Tensor x, dy, scale;
  Tensor dx = {}, dother = {};  // none: not wanted; either may be the memory of dy
  const double* moments = nullptr;
  const std::uint8_t* mask = nullptr;
  const double* sums = nullptr;   // gradient_sums() numbers; null: the moments are constants
  const double* count = nullptr;  // n of these sums, at least 1; of no sums null
};

// Results of the sums of backward.
struct BatchNormGradients {
  double* sums = nullptr;           // gradient_sums() numbers
  Tensor dscale = {}, dshift = {};  // none: not wanted
};

// The two batch norms of a pair: they have the same dy and mask, and no dother.
using BatchNormPair = std::array<BatchNormBackward, 2>;

// From the sums of forward: the moments, and n; and the moving averages follow, where there are
// any: average = keep average + (1 - keep) value, of the mean and of the unbiased variance. Of no
// values (n is 0) nothing is learnt. Where a value is no number the mean is none, and with it every
// output, whatever the variance.
struct BatchNormMoments {
  const double* sums = nullptr;
  double* moments = nullptr;
  double* count = nullptr;     // at least 1
  double* averages = nullptr;  // means, then variances; null: none
  double keep = 0;
};

}  // namespace lockstep::engine
