// SPDX-License-Identifier: MIT
// Convolutions of any window and stride as matrix products by own kernels (lowered_kernels.h), for
// those that Winograd's method does not take. Rows are divided among the replica's threads, and the
// threads' sums are added in order, so a result depends only on the number of threads. Used on the
// replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/cpu/library.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

// Returns whether these kernels can compute it: channels and filters are multiples of 16.
bool lowered_fits(const ConvolutionSpec& spec);
// Returns whether they are then faster than the library, by a measured rule (README.md).
bool lowered_pays(const ConvolutionSpec& spec);
// Returns the bytes of the library's scratch that forward or backward takes, whichever takes more.
std::size_t lowered_scratch(const ConvolutionSpec& spec, int threads);

void lowered_forward(Library& library, const ConvolutionSpec& spec, std::size_t rows,
                     const float* x, const float* w, const float* b, float* y);
// Computes the gradients. dx, dw and db may be null. dy is masked in place if the activation
// requires it.
void lowered_backward(Library& library, const ConvolutionSpec& spec, std::size_t rows,
                      const float* x, const float* y, float* dy, const float* w, float* dx,
                      float* dw, float* db, bool accumulate);

}  // namespace lockstep::engine::cpu
