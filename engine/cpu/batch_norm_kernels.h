// SPDX-License-Identifier: MIT
// Own kernels of batch normalization (engine/ops/batch_norm.h) for channels in multiples of 16.
// Each makes one pass over the operands. Arithmetic is float32; up to 256 positions are summed in
// float32, and these sums in float64. T is the type of storage: float or BFloat16. Compiled for
// each instruction set and chosen at run time. Pure functions; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/base/bfloat16.h"

namespace lockstep::engine::cpu {

// Describes the positions of consecutive whole rows, and numbers per channel. A kernel reads only
// the members that its formula names.
template <class T>
struct BatchNormPart {
  std::size_t positions = 0, channels = 0;
  const T *x = nullptr, *dy = nullptr, *other = nullptr;  // `other` may be null
  T *y = nullptr, *dx = nullptr, *dother = nullptr;       // dx and dother may be null
  const std::uint8_t* passed = nullptr;                   // ReLU's mask; null: no ReLU
  std::uint8_t* mask = nullptr;                           // ReLU's mask, to be written
  const float* about = nullptr;                           // means; for sums, values near them
  const float* factor = nullptr;                          // scale times deviation
  const float* shift = nullptr;                           // forward
  // Parameters that normalize `other` before it is added; null: it is added unchanged.
  const float *other_about = nullptr, *other_factor = nullptr, *other_shift = nullptr;
  // Terms of g - level - (x - about) slope in backward.
  const float *level = nullptr, *slope = nullptr;
  double* sums = nullptr;
};

// Computes sums[c] += x - about and sums[channels + c] += (x - about)^2.
void batch_norm_sums(const BatchNormPart<float>& part);
void batch_norm_sums(const BatchNormPart<BFloat16>& part);
// Computes y = relu((x - about) factor + shift + other), and its bits if `mask` is given. `other`
// may be normalized likewise.
void batch_norm_forward(const BatchNormPart<float>& part);
void batch_norm_forward(const BatchNormPart<BFloat16>& part);
// Computes, with g = dy where ReLU let it pass, sums[c] += g and sums[channels + c] += g (x -
// about).
void batch_norm_gradient_sums(const BatchNormPart<float>& part);
void batch_norm_gradient_sums(const BatchNormPart<BFloat16>& part);
// Computes dx = (g - level - (x - about) slope) factor and dother = g.
void batch_norm_backward(const BatchNormPart<float>& part);
void batch_norm_backward(const BatchNormPart<BFloat16>& part);

}  // namespace lockstep::engine::cpu
