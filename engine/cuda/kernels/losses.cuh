// SPDX-License-Identifier: MIT
// The kernels of losses.h. Softmax first subtracts the largest logit to prevent overflow. Lane l of
// a warp processes columns l, l + 32, ... of a row. If a logit is NaN, so is the loss.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/losses.h"
#include "engine/ops/definitions.h"

namespace lockstep::engine::cuda {

struct Maximum {
  float value;
  std::uint32_t place;
};

// Returns the largest value of a row and the first place where it occurs, in all lanes.
template <class T>
__device__ Maximum largest_of_row(const T* row, std::size_t columns) {
  Maximum best{-std::numeric_limits<float>::infinity(), 0};
  for (std::size_t c = lane(); c < columns; c += kWarp) {
    if (wide(row[c]) > best.value) best = {wide(row[c]), std::uint32_t(c)};
  }
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) {
    const Maximum other{shuffle_xor(best.value, mask), shuffle_xor(best.place, mask)};
    const bool before = other.value == best.value && other.place < best.place;
    if (other.value > best.value || before) best = other;
  }
  return best;
}

// Returns the sum of function(column) over the columns of a row, in all lanes.
template <class Function>
__device__ double sum_of_row(std::size_t columns, Function function) {
  double sum = 0;
  for (std::size_t c = lane(); c < columns; c += kWarp) sum += double(function(c));
  return sum_of_warp(sum);
}

template <class T>
__device__ void run(const Softmax& a) {
  const std::size_t rows = std::size_t(a.state->examples);
  for (std::size_t r = first_warp(); r < rows; r += warp_stride()) {
    const T* const from = static_cast<const T*>(a.logits) + r * a.classes;
    T* const to = static_cast<T*>(a.probabilities) + r * a.classes;
    const float largest = largest_of_row(from, a.classes).value;
    const auto power = [&](std::size_t c) { return std::exp(wide(from[c]) - largest); };
    const float factor = float(1 / sum_of_row(a.classes, power));
    for (std::size_t c = lane(); c < a.classes; c += kWarp) to[c] = narrow<T>(power(c) * factor);
  }
}

// Every lane reads the target's logit before the warp's barrier, so the gradient may then overwrite
// the logits. At the target, where a probability near 1 meets 1, it is computed in float64.
template <class T>
__device__ void run(const SoftmaxCrossEntropy& a) {
  const std::size_t rows = std::size_t(a.state->examples);
  const double weight = a.state->inverse_examples * a.state->loss_scale;
  const double spread = a.smoothing / double(a.classes);  // smoothing mass per class
  for (std::size_t r = first_warp(); r < rows; r += warp_stride()) {
    const T* const from = static_cast<const T*>(a.logits) + r * a.classes;
    const bool known = is_index(a.target[r], a.classes);
    const std::size_t wanted = known ? std::size_t(a.target[r]) : 0;
    if (!known && lane() == 0) atomic_min(&a.problem->first, r);
    const Maximum largest = largest_of_row(from, a.classes);
    const auto shifted = [&](std::size_t c) { return wide(from[c]) - largest.value; };
    const auto power = [&](std::size_t c) { return std::exp(shifted(c)); };
    const auto below_largest = [&](std::size_t c) {
      return double(wide(from[c])) - double(largest.value);
    };
    double below = below_largest(wanted);  // expected value under the smoothed target
    const double at_wanted = double(power(wanted));
    if (a.smoothing > 0) {
      below = (1 - a.smoothing) * below + spread * sum_of_row(a.classes, below_largest);
    }
    const double sum = sum_of_row(a.classes, power);
    const double loss = std::log(sum) - below;
    if (lane() == 0 && a.losses != nullptr) a.losses[r] = loss;
    if (lane() == 0 && a.correct != nullptr) {
      a.correct[r] = largest.place == wanted && !std::isnan(loss) ? 1.0 : 0.0;
    }
    if (a.dlogits == nullptr) continue;
    T* const to = static_cast<T*>(a.dlogits) + r * a.classes;
    const float factor = float(weight / sum), share = float(spread * weight);
    warp_barrier();
    for (std::size_t c = lane(); c < a.classes; c += kWarp) {
      to[c] = narrow<T>(c == wanted ? float((at_wanted / sum - (1 - a.smoothing) - spread) * weight)
                                    : power(c) * factor - share);
    }
  }
}

template <class T>
__device__ void run(const SquaredError& a) {
  const std::size_t rows = std::size_t(a.state->examples);
  const double factor = 2 * a.state->inverse_examples * a.state->loss_scale / double(a.columns);
  for (std::size_t r = first_warp(); r < rows; r += warp_stride()) {
    const std::size_t first = r * a.columns;
    const double sum = sum_of_row(a.columns, [&](std::size_t c) {
      const double y = double(wide(static_cast<const T*>(a.y)[first + c]));
      const double difference = y - double(a.target[first + c]);
      if (a.dy != nullptr) static_cast<T*>(a.dy)[first + c] = narrow<T>(float(difference * factor));
      return difference * difference;
    });
    if (lane() == 0 && a.losses != nullptr) a.losses[r] = sum / double(a.columns);
  }
}

}  // namespace lockstep::engine::cuda
