// SPDX-License-Identifier: MIT
// Reference: dense layers. With r a row, o an output, i an input:
//   y[r][o] = activation(sum_i x[r][i] w[o][i] + b[o])
#pragma once
#include "engine/ops/checks.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

// Returns the gradient that passes through y = max(0, ...): zero if y was cut.
template <class T>
double through(Activation activation, T y, T dy) {
  return activation == Activation::kRelu && !(y > 0) ? 0.0 : double(dy);
}

template <class T>
double activated(Activation activation, double sum) {
  return activation == Activation::kRelu && sum < 0 ? 0.0 : sum;
}

// Writes a gradient, or adds it to the one there.
template <class T>
void deposit(T* place, double gradient, bool accumulate) {
  *place = T(accumulate ? double(*place) + gradient : gradient);
}

template <class T>
void ReferenceOps<T>::dense_forward(const StepState* state, const DenseSpec& spec, Tensor x,
                                    Tensor w, Tensor b, Tensor y) {
  const std::size_t rows = rows_in_use(state, {x, y});
  check_batch(x, kType, spec.inputs, "dense: x");
  check_batch(y, kType, spec.outputs, "dense: y");
  check_parameter(w, kType, spec.outputs * spec.inputs, "dense: w");
  check_parameter(b, kType, spec.outputs, "dense: b");
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < spec.outputs; ++o) {
      double sum = spec.bias ? double(b.as<T>()[o]) : 0.0;
      for (std::size_t i = 0; i < spec.inputs; ++i) {
        sum += double(x.as<T>()[r * spec.inputs + i]) * double(w.as<T>()[o * spec.inputs + i]);
      }
      y.as<T>()[r * spec.outputs + o] = T(activated<T>(spec.activation, sum));
    }
  }
}

template <class T>
void ReferenceOps<T>::dense_backward(const StepState* state, const DenseSpec& spec, Tensor x,
                                     Tensor y, Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                     bool accumulate) {
  const std::size_t rows = rows_in_use(state, {x, y, dy, dx});
  check_batch(x, kType, spec.inputs, "dense: x");
  check_batch(y, kType, spec.outputs, "dense: y");
  check_batch(dy, kType, spec.outputs, "dense: dy");
  check_batch(dx, kType, spec.inputs, "dense: dx");
  check_parameter(w, kType, spec.outputs * spec.inputs, "dense: w");
  check_parameter(dw, kType, spec.outputs * spec.inputs, "dense: dw");
  check_parameter(db, kType, spec.outputs, "dense: db");
  const auto gradient = [&](std::size_t r, std::size_t o) {
    const std::size_t at = r * spec.outputs + o;
    return through(spec.activation, y.as<T>()[at], dy.as<T>()[at]);
  };
  for (std::size_t r = 0; dx && r < rows; ++r) {
    for (std::size_t i = 0; i < spec.inputs; ++i) {
      double sum = 0;
      for (std::size_t o = 0; o < spec.outputs; ++o) {
        sum += gradient(r, o) * double(w.as<T>()[o * spec.inputs + i]);
      }
      dx.as<T>()[r * spec.inputs + i] = T(sum);
    }
  }
  for (std::size_t o = 0; o < spec.outputs; ++o) {
    for (std::size_t i = 0; dw && i < spec.inputs; ++i) {
      double sum = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        sum += gradient(r, o) * double(x.as<T>()[r * spec.inputs + i]);
      }
      deposit(dw.as<T>() + o * spec.inputs + i, sum, accumulate);
    }
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += gradient(r, o);
    if (spec.bias && db) deposit(db.as<T>() + o, sum, accumulate);
  }
}

}  // namespace lockstep::engine
