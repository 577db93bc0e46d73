// SPDX-License-Identifier: MIT
// Convolutions of any window and stride as products of matrices by own kernels (lowered_kernels.h):
// those that Winograd's method does not take. Rows are shared among the replica's threads; the sums
// of the threads are added in their order, so a result depends on the number of threads, not on
// chance. The replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/cpu/library.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

// Whether these kernels can compute it: channels and filters in multiples of 16.
bool lowered_fits(const ConvolutionSpec& spec);
// Whether they then compute it faster than the library does, by a rule that was measured:
// README.md.
bool lowered_pays(const ConvolutionSpec& spec);
// Bytes of the library's scratch that forward and backward take, whichever takes more.
std::size_t lowered_scratch(const ConvolutionSpec& spec, int threads);

void lowered_forward(Library& library, const ConvolutionSpec& spec, std::size_t rows,
                     const float* x, const float* w, const float* b, float* y);
// dx, dw, db may be null; dy is masked in place where the activation asks for it.
void lowered_backward(Library& library, const ConvolutionSpec& spec, std::size_t rows,
                      const float* x, const float* y, float* dy, const float* w, float* dx,
                      float* dw, float* db, bool accumulate);

}  // namespace lockstep::engine::cpu
