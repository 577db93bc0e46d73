// SPDX-License-Identifier: MIT
// The loops of loops.h over bfloat16: widened in registers, computed in float32, rounded once to
// the nearest. Compiled for each instruction set and chosen as the program runs. Operands of the
// element-wise ones may be the same memory, but may not overlap otherwise. Any thread.
#pragma once
#include <cstddef>

#include "engine/base/bfloat16.h"

namespace lockstep::engine::cpu {

void widen(const BFloat16* from, float* to, std::size_t count);
void narrow(const float* from, BFloat16* to, std::size_t count);
// The same for sums of gradients: added, before they are rounded, to what is there where
// `accumulate`.
void narrow_sums(const float* sums, BFloat16* to, std::size_t count, bool accumulate);

void relu(const BFloat16* x, BFloat16* y, std::size_t count);
void mask(const BFloat16* y, const BFloat16* dy, BFloat16* dx, std::size_t count);
void tanh(const BFloat16* x, BFloat16* y, std::size_t count);
void tanh_gradient(const BFloat16* y, const BFloat16* dy, BFloat16* dx, std::size_t count);
void add(const BFloat16* a, const BFloat16* b, BFloat16* y, std::size_t count);
// The sums are float32; rounded once, after what was there has been added where `accumulate`.
void column_sums(const BFloat16* x, std::size_t rows, std::size_t columns, BFloat16* sums,
                 bool accumulate);

}  // namespace lockstep::engine::cpu
