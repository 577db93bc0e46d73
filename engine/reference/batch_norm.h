// SPDX-License-Identifier: MIT
// Reference: batch normalization by the formulas of engine/ops/batch_norm.h.
#pragma once
#include <algorithm>

#include "engine/ops/checks.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

template <class T>
void ReferenceOps<T>::batch_norm_sums(const StepState* state, const BatchNormSpec& s, Tensor x,
                                      double* sums) {
  check_batch(x, kType, s.columns(), "batch norm: x");
  const std::size_t count = rows_in_use(state, {x}) * s.columns();
  std::fill_n(sums, s.sums(), 0.0);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = double(x.as<T>()[i]);
    sums[i % s.channels] += value;
    sums[s.channels + i % s.channels] += value * value;
  }
  sums[2 * s.channels] = double(count / s.channels);
}

template <class T>
void ReferenceOps<T>::batch_norm_forward(const StepState* state, const BatchNormSpec& s,
                                         const BatchNormForward& a) {
  check_call(s, kType, a);
  const std::size_t rows = rows_in_use(state, {a.x, a.other, a.y});
  const bool cuts = s.activation == Activation::kRelu;
  std::fill_n(a.mask, rows * s.mask_of_row(), std::uint8_t(0));
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < s.columns(); ++i) {
      const std::size_t at = row * s.columns() + i, c = i % s.channels;
      const auto normal = [&](const Tensor& x, const double* moments, const Tensor& scale,
                              const Tensor& shift) {
        return (double(x.as<T>()[at]) - moments[c]) * moments[s.channels + c] *
                   double(scale.as<T>()[c]) +
               double(shift.as<T>()[c]);
      };
      double y = normal(a.x, a.moments, a.scale, a.shift);
      if (a.other_moments != nullptr) {
        y += normal(a.other, a.other_moments, a.other_scale, a.other_shift);
      } else if (a.other) {
        y += double(a.other.as<T>()[at]);
      }
      if (cuts && y > 0) a.mask[row * s.mask_of_row() + i / 8] |= std::uint8_t(1u << (i % 8));
      a.y.as<T>()[at] = T(cuts && y < 0 ? 0.0 : y);
    }
  }
}

// Returns the gradient of the activation's input.
template <class T>
double passed(const BatchNormSpec& s, const BatchNormBackward& a, std::size_t row, std::size_t i) {
  const double dy = double(a.dy.as<T>()[row * s.columns() + i]);
  if (s.activation == Activation::kNone) return dy;
  return (a.mask[row * s.mask_of_row() + i / 8] >> (i % 8) & 1) != 0 ? dy : 0;
}

template <class T>
void ReferenceOps<T>::batch_norm_gradient_sums(const StepState* state, const BatchNormSpec& s,
                                               const BatchNormBackward& a, Tensor dscale,
                                               Tensor dshift, bool accumulate, double* sums) {
  check_call(s, kType, a);
  check_parameter(dscale, kType, s.channels, "batch norm: dscale");
  check_parameter(dshift, kType, s.channels, "batch norm: dshift");
  const std::size_t rows = rows_in_use(state, {a.x, a.dy});
  std::fill_n(sums, s.gradient_sums(), 0.0);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < s.columns(); ++i) {
      const std::size_t c = i % s.channels;
      const double g = passed<T>(s, a, row, i);
      sums[c] += g;
      sums[s.channels + c] += g * (double(a.x.as<T>()[row * s.columns() + i]) - a.moments[c]) *
                              a.moments[s.channels + c];
    }
  }
  for (std::size_t c = 0; c < s.channels; ++c) {
    const auto put = [&](const Tensor& to, double value) {
      if (to) to.as<T>()[c] = T(value + (accumulate ? double(to.as<T>()[c]) : 0.0));
    };
    put(dshift, sums[c]);
    put(dscale, sums[s.channels + c]);
  }
}

template <class T>
void ReferenceOps<T>::batch_norm_backward(const StepState* state, const BatchNormSpec& s,
                                          const BatchNormBackward& a) {
  check_call(s, kType, a);
  const std::size_t rows = rows_in_use(state, {a.x, a.dy, a.dx, a.dother});
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < s.columns(); ++i) {
      const std::size_t at = row * s.columns() + i, c = i % s.channels;
      const double g = passed<T>(s, a, row, i), deviation = a.moments[s.channels + c];
      const double normal = (double(a.x.as<T>()[at]) - a.moments[c]) * deviation;
      double dx = g;
      if (a.sums != nullptr) dx -= (a.sums[c] + normal * a.sums[s.channels + c]) / *a.count;
      if (a.dx) a.dx.as<T>()[at] = T(dx * double(a.scale.as<T>()[c]) * deviation);
      if (a.dother) a.dother.as<T>()[at] = T(g);
    }
  }
}

}  // namespace lockstep::engine
