// SPDX-License-Identifier: MIT
// Own kernels of batch normalisation (engine/ops/batch_norm.h) for channels in multiples of 16:
// one pass over the operands each, arithmetic in float32, sums of up to 256 positions in float32
// and those in float64. T is the type of storage: float or BFloat16. Compiled for each instruction
// set and chosen as the program runs. Pure functions; any thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/base/bfloat16.h"

namespace lockstep::engine::cpu {

// Positions of whole rows that follow each other, and the numbers of each channel. What a kernel
// does not name is not looked at.
template <class T>
struct BatchNormPart {
  std::size_t positions = 0, channels = 0;
  const T *x = nullptr, *dy = nullptr, *other = nullptr;  // other: may be null
  T *y = nullptr, *dx = nullptr, *dother = nullptr;       // these two may be null
  const std::uint8_t* passed = nullptr;  // bits of what ReLU let pass; null: there is none
  std::uint8_t* mask = nullptr;          // the same, to be written
  const float* about = nullptr;          // of sums: what values are near to; else the means
  const float* factor = nullptr;         // scale times deviation
  const float* shift = nullptr;          // of forward
  // The same of `other`, which is normalised before it is added; null: it is added as it is.
  const float *other_about = nullptr, *other_factor = nullptr, *other_shift = nullptr;
  const float *level = nullptr, *slope = nullptr;  // of backward: g - level - (x - about) slope
  double* sums = nullptr;
};

// sums[c] += x - about, sums[channels + c] += (x - about)^2.
void batch_norm_sums(const BatchNormPart<float>& part);
void batch_norm_sums(const BatchNormPart<BFloat16>& part);
// y = relu((x - about) factor + shift + other), with its bits where `mask`, where `other` may be
// normalised likewise.
void batch_norm_forward(const BatchNormPart<float>& part);
void batch_norm_forward(const BatchNormPart<BFloat16>& part);
// With g = dy where it passed: sums[c] += g, sums[channels + c] += g (x - about).
void batch_norm_gradient_sums(const BatchNormPart<float>& part);
void batch_norm_gradient_sums(const BatchNormPart<BFloat16>& part);
// dx = (g - level - (x - about) slope) factor; dother = g.
void batch_norm_backward(const BatchNormPart<float>& part);
void batch_norm_backward(const BatchNormPart<BFloat16>& part);

}  // namespace lockstep::engine::cpu
