// SPDX-License-Identifier: MIT
// The loops of loops.h over bfloat16: widened in registers, computed in float32, rounded once to
// the nearest. Compiled for each instruction set and chosen at run time. Operands of element-wise
// loops may be the same memory, but may not overlap otherwise. Thread-safe.
#pragma once
#include <cstddef>

#include "engine/base/bfloat16.h"

namespace lockstep::engine::cpu {

void widen(const BFloat16* from, float* to, std::size_t count);
void narrow(const float* from, BFloat16* to, std::size_t count);
// Narrows sums of gradients; if `accumulate`, adds them to `to` before rounding.
void narrow_sums(const float* sums, BFloat16* to, std::size_t count, bool accumulate);

void relu(const BFloat16* x, BFloat16* y, std::size_t count);
void mask(const BFloat16* y, const BFloat16* dy, BFloat16* dx, std::size_t count);
void tanh(const BFloat16* x, BFloat16* y, std::size_t count);
void tanh_gradient(const BFloat16* y, const BFloat16* dy, BFloat16* dx, std::size_t count);
void add(const BFloat16* a, const BFloat16* b, BFloat16* y, std::size_t count);
// Sums columns in float32 and rounds once, after adding the previous value if `accumulate`.
void column_sums(const BFloat16* x, std::size_t rows, std::size_t columns, BFloat16* sums,
                 bool accumulate);

}  // namespace lockstep::engine::cpu
