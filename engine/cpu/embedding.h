// SPDX-License-Identifier: MIT
// Rows of a table of float32, picked and put back; ops.h says what they compute. Forward shares the
// examples among `threads`. Backward fills with zeros on all of them, then adds on the calling one:
// a few additions for each number of dy, in the order of the examples, and a table of millions of
// rows costs its zeros. The replica's computing thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

void embedding_forward(int threads, const EmbeddingSpec& spec, std::size_t rows,
                       const std::uint32_t* places, const float* w, float* y);
void embedding_backward(int threads, const EmbeddingSpec& spec, std::size_t rows,
                        const std::uint32_t* places, const float* dy, std::size_t table_rows,
                        float* dw, bool accumulate);

}  // namespace lockstep::engine::cpu
