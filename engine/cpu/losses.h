// SPDX-License-Identifier: MIT
// Losses over float32 rows; sums of a row are double. engine/ops/ops.h defines them. Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cpu {

void softmax(std::size_t rows, std::size_t classes, const float* logits, float* probabilities);

// Multiplies the gradient by `weight`; ids, dlogits, losses and correct may be null. Throws
// Error(kInvalid) if a target is not a class.
void softmax_cross_entropy(std::size_t rows, std::size_t classes, double smoothing,
                           const float* logits, const float* target, const std::int64_t* ids,
                           double weight, float* dlogits, double* losses, double* correct);

void squared_error(std::size_t rows, std::size_t columns, const float* y, const float* target,
                   double weight, float* dy, double* losses);

}  // namespace lockstep::engine::cpu
