// SPDX-License-Identifier: MIT
// Rows of a table of T (float or BFloat16), picked and put back; ops.h says what they compute.
// Forward shares the examples among `threads`. Backward fills with zeros on all of them, then adds
// on the calling one: a few additions for each number of dy, in the order of the examples, and a
// table of millions of rows costs its zeros. Of bfloat16 each row is summed as float32 and rounded
// once: the places are sorted for that, in the library's scratch. The replica's computing thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/cpu/library.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

template <class T>
void embedding_forward(int threads, const EmbeddingSpec& spec, std::size_t rows,
                       const std::uint32_t* places, const T* w, T* y);
template <class T>
void embedding_backward(Library& library, const EmbeddingSpec& spec, std::size_t rows,
                        const std::uint32_t* places, const T* dy, std::size_t table_rows, T* dw,
                        bool accumulate);

}  // namespace lockstep::engine::cpu
