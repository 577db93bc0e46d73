// SPDX-License-Identifier: MIT
// Pools over NHWC images, float32. The workspace of a max pool holds for each output the number of
// the winning place in its window: a byte, or four where a window has more than 256 places. No
// state; any thread.
#pragma once
#include <cstddef>

#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

std::size_t pool_workspace(const PoolSpec& spec, std::size_t rows);
void pool_forward(const PoolSpec& spec, std::size_t rows, const float* x, float* y,
                  std::byte* workspace);
void pool_backward(const PoolSpec& spec, std::size_t rows, const float* dy, float* dx,
                   const std::byte* workspace);

}  // namespace lockstep::engine::cpu
