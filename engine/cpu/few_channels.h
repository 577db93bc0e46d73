// SPDX-License-Identifier: MIT
// Convolutions of T (float or BFloat16) with few input channels, by own kernels
// (few_channels_kernels.h): forward, and the gradients of weights and bias. The library computes
// the gradient of the input, which a first layer never needs. Rows are divided among the replica's
// threads, and sums are added in thread order. Used on the replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/cpu/library.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

// Returns whether there are at most 15 channels and 64 products per output, and filters in
// multiples of 16.
bool few_channels_fits(const ConvolutionSpec& spec);
// Returns the bytes of the library's scratch that both calls take.
template <class T>
std::size_t few_channels_scratch(const ConvolutionSpec& spec, int threads);

template <class T>
void few_channels_forward(Library& library, const ConvolutionSpec& spec, std::size_t rows,
                          const T* x, const T* w, const T* b, T* y);
// Computes the gradients of the parameters. dw and db may be null.
template <class T>
void few_channels_gradient(Library& library, const ConvolutionSpec& spec, std::size_t rows,
                           const T* x, const T* y, const T* dy, T* dw, T* db, bool accumulate);

}  // namespace lockstep::engine::cpu
