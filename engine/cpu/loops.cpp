// SPDX-License-Identifier: MIT
#include "engine/cpu/loops.h"

#include <Eigen/Core>
#include <algorithm>

namespace lockstep::engine::cpu {
namespace {

using Values = Eigen::Map<Eigen::ArrayXf>;
using ConstValues = Eigen::Map<const Eigen::ArrayXf>;

ConstValues values(const float* data, std::size_t count) {
  return {data, Eigen::Index(count)};
}
Values values(float* data, std::size_t count) {
  return {data, Eigen::Index(count)};
}

}  // namespace

// ivdep is valid: element i of an output depends only on element i of the inputs, aliased or not.
void relu(const float* x, float* y, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0.0f : x[i];
}

void mask(const float* y, const float* dy, float* dx, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) dx[i] = kept_where(y[i] > 0, dy[i]);
}

void tanh(const float* x, float* y, std::size_t count) {
  values(y, count) = values(x, count).tanh();
}

void tanh_gradient(const float* y, const float* dy, float* dx, std::size_t count) {
  values(dx, count) = values(dy, count) * (1.0f - values(y, count).square());
}

void add(const float* a, const float* b, float* y, std::size_t count) {
  values(y, count) = values(a, count) + values(b, count);
}

void column_sums(const float* x, std::size_t rows, std::size_t columns, float* sums,
                 bool accumulate) {
  if (!accumulate) std::fill_n(sums, columns, 0.0f);
  for (std::size_t r = 0; r < rows; ++r) add(sums, x + r * columns, sums, columns);
}

}  // namespace lockstep::engine::cpu
