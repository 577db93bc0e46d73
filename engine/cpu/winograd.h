// SPDX-License-Identifier: MIT
// 3x3 convolutions of stride 1 by own kernels (winograd_kernels.h). ReLU and a following 2x2 max
// pool are in the same pass, so that the convolution's own output is never stored. Rows are divided
// among the replica's threads, and the threads' sums are added in order, so a result depends only
// on the number of threads. Used on the replica's computing thread only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/cpu/library.h"
#include "engine/cpu/winograd_kernels.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

// Returns whether these kernels can compute it: 3x3, stride 1, padding of at most 2, channels and
// filters in multiples of 16.
bool winograd_fits(const ConvolutionSpec& spec);
// Returns whether they then compute so many rows faster than the library, by a measured rule
// (README.md).
bool winograd_pays(const ConvolutionSpec& spec, std::size_t rows);
// Returns the same for the output alone in bfloat16. The library computes it twice as fast as
// float32 and these kernels do not, so there must be more to save.
bool winograd_pays_forward_in_bfloat16(const ConvolutionSpec& spec, std::size_t rows);
// Returns the shape of a convolution that fits.
WinogradShape winograd_shape(const ConvolutionSpec& spec, bool pool);

// Holds memory that one convolution keeps from slice to slice and from forward to backward.
struct WinogradMemory {
  float* planes = nullptr;         // winograd_planes() floats; null: uses the scratch
  std::uint8_t* places = nullptr;  // the call's first row, if pooled
};
std::size_t winograd_planes(const WinogradShape& shape, int threads);
// Returns the bytes of the library's scratch that a call takes.
std::size_t winograd_scratch(const WinogradShape& shape, int threads, bool planes);

template <class T>  // float or BFloat16
void winograd_forward(Library& library, const WinogradShape& shape, std::size_t rows, const T* x,
                      const T* w, const T* b, T* y, const WinogradMemory& memory, Slice slice);
// Computes the gradients. dx, dw and db may be null. Reads forward's `y` if ReLU was fused without
// a pool.
template <class T>
void winograd_backward(Library& library, WinogradShape shape, std::size_t rows, const T* x,
                       const T* y, const T* dy, const T* w, T* dx, T* dw, T* db,
                       const WinogradMemory& memory, bool accumulate, Slice slice);

}  // namespace lockstep::engine::cpu
