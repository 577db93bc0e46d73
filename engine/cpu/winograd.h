// SPDX-License-Identifier: MIT
// 3x3 convolutions of stride 1 by own kernels (winograd_kernels.h), with ReLU and a following max
// pool of 2x2 in the same pass: the convolution's own output is then never stored. Rows are shared
// among the replica's threads; the sums of the threads are added in their order, so a result
// depends on the number of threads, not on chance. The replica's computing thread only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/cpu/library.h"
#include "engine/cpu/winograd_kernels.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

// Whether these kernels can compute it: channels and filters in multiples of 16.
bool winograd_fits(const ConvolutionSpec& spec);
// Whether they then compute so many rows faster than the library does, by a rule that was measured:
// README.md.
bool winograd_pays(const ConvolutionSpec& spec, std::size_t rows);
// The same of the output alone in bfloat16, which the library computes twice as fast as float32 and
// these kernels do not: there must be more to save.
bool winograd_pays_forward_in_bfloat16(const ConvolutionSpec& spec, std::size_t rows);
// Of a convolution that fits.
WinogradShape winograd_shape(const ConvolutionSpec& spec, bool pool);

// Memory that one convolution keeps from slice to slice and from forward to backward.
struct WinogradMemory {
  float* planes = nullptr;         // winograd_planes() floats; null: of the call, in the scratch
  std::uint8_t* places = nullptr;  // of the call's first row, where pooled
};
std::size_t winograd_planes(const WinogradShape& shape, int threads);
// Bytes of the library's scratch that a call takes.
std::size_t winograd_scratch(const WinogradShape& shape, int threads, bool planes);

template <class T>  // float or BFloat16
void winograd_forward(Library& library, const WinogradShape& shape, std::size_t rows, const T* x,
                      const T* w, const T* b, T* y, const WinogradMemory& memory, Slice slice);
// dx, dw, db may be null. `y` of forward is read where ReLU was fused and no pool.
template <class T>
void winograd_backward(Library& library, WinogradShape shape, std::size_t rows, const T* x,
                       const T* y, const T* dy, const T* w, T* dx, T* dw, T* db,
                       const WinogradMemory& memory, bool accumulate, Slice slice);

}  // namespace lockstep::engine::cpu
