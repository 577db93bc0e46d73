// SPDX-License-Identifier: MIT
// Pools over NHWC images of T (float or BFloat16); sums are float32. The workspace of a max pool
// holds the winning position in each output's window: one byte, or four if a window has more than
// 256 positions. Used on the replica's computing thread.
#pragma once
#include <cstddef>

#include "engine/cpu/library.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

std::size_t pool_workspace(const PoolSpec& spec, std::size_t rows);
template <class T>
void pool_forward(const PoolSpec& spec, std::size_t rows, const T* x, T* y, std::byte* workspace);
// Uses the library's scratch for one image's gradients as float32 if T is another type.
template <class T>
void pool_backward(Library& library, const PoolSpec& spec, std::size_t rows, const T* dy, T* dx,
                   const std::byte* workspace);

}  // namespace lockstep::engine::cpu
