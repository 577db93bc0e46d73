// SPDX-License-Identifier: MIT
// Embeddings with tables of T (float or BFloat16); engine/ops/ops.h defines them. Forward divides
// the examples among `threads`. Backward writes zeros on all threads, then adds on the calling one:
// a few additions per number of dy, in the order of the examples. For a table of millions of rows
// the zeros dominate. For bfloat16 each row is summed as float32 and rounded once; for that the
// places are sorted in the library's scratch. Used on the replica's computing thread.
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
