// SPDX-License-Identifier: MIT
// Reference: element-wise kernels.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/ops/checks.h"
#include "engine/ops/definitions.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

// Returns the number of elements in use. Checks that all operands have the same type and columns.
inline std::size_t elements_in_use(const StepState* state, DType dtype,
                                   std::initializer_list<Tensor> batches) {
  const std::size_t rows = rows_in_use(state, batches);
  const std::size_t columns = batches.begin()->columns();
  for (const Tensor& batch : batches) check_batch(batch, dtype, columns, "operands of two shapes");
  return rows * columns;
}

template <class T>
void ReferenceOps<T>::relu(const StepState* state, Tensor x, Tensor y) {
  const std::size_t count = elements_in_use(state, kType, {x, y});
  for (std::size_t i = 0; i < count; ++i) y.as<T>()[i] = x.as<T>()[i] < 0 ? T(0) : x.as<T>()[i];
}

template <class T>
void ReferenceOps<T>::relu_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) {
  const std::size_t count = elements_in_use(state, kType, {y, dy, dx});
  for (std::size_t i = 0; i < count; ++i) dx.as<T>()[i] = y.as<T>()[i] > 0 ? dy.as<T>()[i] : T(0);
}

template <class T>
void ReferenceOps<T>::tanh(const StepState* state, Tensor x, Tensor y) {
  const std::size_t count = elements_in_use(state, kType, {x, y});
  for (std::size_t i = 0; i < count; ++i) y.as<T>()[i] = T(std::tanh(double(x.as<T>()[i])));
}

template <class T>
void ReferenceOps<T>::tanh_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) {
  const std::size_t count = elements_in_use(state, kType, {y, dy, dx});
  for (std::size_t i = 0; i < count; ++i) {
    const double value = double(y.as<T>()[i]);
    dx.as<T>()[i] = T(double(dy.as<T>()[i]) * (1 - value * value));
  }
}

template <class T>
void ReferenceOps<T>::add(const StepState* state, Tensor a, Tensor b, Tensor y) {
  const std::size_t count = elements_in_use(state, kType, {a, b, y});
  for (std::size_t i = 0; i < count; ++i) y.as<T>()[i] = T(a.as<T>()[i] + b.as<T>()[i]);
}

template <class T>
void ReferenceOps<T>::dropout(const StepState* state, const DropoutSpec& spec, Tensor x, Tensor y) {
  invariant(spec.rate >= 0 && spec.rate < 1, "a dropout rate outside [0, 1)");
  elements_in_use(state, kType, {x, y});
  const std::size_t rows = rows_in_use(state, {x, y});
  const std::size_t columns = x.columns();
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t j = 0; j < columns; ++j) {
      const auto bits = dropout_bits(spec.key, state->ids[r], state->step, j / 4);
      const double factor = dropout_keeps(bits[j % 4], spec.rate) ? 1 / (1 - spec.rate) : 0.0;
      const std::size_t at = r * columns + j;
      y.as<T>()[at] = factor == 0 ? T(0) : T(double(x.as<T>()[at]) * factor);
    }
  }
}

template <class T>
void ReferenceOps<T>::load(const float* from, Tensor x) {
  check_parameter(x, kType, x.elements(), "load: x");
  for (std::size_t i = 0; i < x.elements(); ++i) x.as<T>()[i] = T(from[i]);
}

template <class T>
std::uint64_t ReferenceOps<T>::checksum(const std::byte* data, std::size_t bytes,
                                        std::size_t offset) const {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes; at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + at, std::min<std::size_t>(4, bytes - at));
    sum += checksum_word(word, offset + at / 4);
  }
  return sum;
}

}  // namespace lockstep::engine
