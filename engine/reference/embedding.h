// SPDX-License-Identifier: MIT
// Reference: rows of a table. With r an example, f a field, c a column, p = places[r][f]:
//   y[r][f][c] = w[p][c], or y[r][c] = sum_f w[p][c]
#pragma once
#include <vector>

#include "engine/ops/checks.h"
#include "engine/reference/dense.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

template <class T>
void ReferenceOps<T>::embedding_forward(const StepState* state, const EmbeddingSpec& spec,
                                        const std::uint32_t* places, Tensor w, Tensor y) {
  const std::size_t rows = rows_in_use(state, {y}), columns = spec.columns;
  check_batch(y, kType, spec.outputs(), "embedding: y");
  check_parameter(w, kType, w.elements(), "embedding: w");
  check_places(spec, rows, places, w);
  const auto value = [&](std::size_t r, std::size_t f, std::size_t c) {
    return w.as<T>()[places[r * spec.fields + f] * columns + c];
  };
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::size_t f = 0; f < spec.fields; ++f) {
        if (!spec.sum) y.as<T>()[(r * spec.fields + f) * columns + c] = value(r, f, c);
        sum += double(value(r, f, c));
      }
      if (spec.sum) y.as<T>()[r * columns + c] = T(sum);
    }
  }
}

template <class T>
void ReferenceOps<T>::embedding_backward(const StepState* state, const EmbeddingSpec& spec,
                                         const std::uint32_t* places, Tensor dy, Tensor dw,
                                         bool accumulate) {
  if (!dw) return;
  const std::size_t rows = rows_in_use(state, {dy}), columns = spec.columns;
  check_batch(dy, kType, spec.outputs(), "embedding: dy");
  check_parameter(dw, kType, dw.elements(), "embedding: dw");
  check_places(spec, rows, places, dw);
  std::vector<double> sums(dw.elements());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t f = 0; f < spec.fields; ++f) {
      for (std::size_t c = 0; c < columns; ++c) {
        const std::size_t from = spec.sum ? r * columns + c : (r * spec.fields + f) * columns + c;
        sums[places[r * spec.fields + f] * columns + c] += double(dy.as<T>()[from]);
      }
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) deposit(dw.as<T>() + i, sums[i], accumulate);
}

}  // namespace lockstep::engine
