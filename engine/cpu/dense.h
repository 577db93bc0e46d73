// SPDX-License-Identifier: MIT
// Dense layers by oneDNN's matrix product, which reads weights as they lie and is as fast on one
// core as its inner product with a layout of its own and the copy into it (measured: 9216 to 128 at
// 128 rows). The replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

void dense_forward(const DenseSpec& spec, std::size_t rows, const float* x, const float* w,
                   const float* b, float* y);
// dx, dw, db may be null; dy is masked in place where the activation asks for it.
void dense_backward(const DenseSpec& spec, std::size_t rows, const float* x, const float* y,
                    float* dy, const float* w, float* dx, float* dw, float* db, bool accumulate);

}  // namespace lockstep::engine::cpu
