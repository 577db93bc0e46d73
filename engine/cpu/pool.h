// SPDX-License-Identifier: MIT
// Pools over NHWC images of T (float or BFloat16); sums are float32. The workspace of a max pool
// holds for each output the number of the winning place in its window: a byte, or four where a
// window has more than 256 places. The replica's computing thread.
#pragma once
#include <cstddef>

#include "engine/cpu/library.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

std::size_t pool_workspace(const PoolSpec& spec, std::size_t rows);
template <class T>
void pool_forward(const PoolSpec& spec, std::size_t rows, const T* x, T* y, std::byte* workspace);
// The library's scratch holds the gradients of one image as float32, where T is another type.
template <class T>
void pool_backward(Library& library, const PoolSpec& spec, std::size_t rows, const T* dy, T* dx,
                   const std::byte* workspace);

}  // namespace lockstep::engine::cpu
