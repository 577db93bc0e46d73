// SPDX-License-Identifier: MIT
// Loops over float32 that the compiler vectorizes. Operands of element-wise loops may be the same
// memory, but may not overlap otherwise. Thread-safe.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cpu {

// Returns `keep ? value : 0` without a branch. Compilers vectorize this form, but not the
// conditional.
inline float kept_where(bool keep, float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (0u - std::uint32_t(keep)));
}

void relu(const float* x, float* y, std::size_t count);                    // keeps NaN
void mask(const float* y, const float* dy, float* dx, std::size_t count);  // y > 0 ? dy : 0
void tanh(const float* x, float* y, std::size_t count);
void tanh_gradient(const float* y, const float* dy, float* dx, std::size_t count);
void add(const float* a, const float* b, float* y, std::size_t count);
// Computes sums[c] = (accumulate ? sums[c] : 0) + the sum over rows of x[r][c].
void column_sums(const float* x, std::size_t rows, std::size_t columns, float* sums,
                 bool accumulate);

}  // namespace lockstep::engine::cpu
