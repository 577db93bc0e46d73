// SPDX-License-Identifier: MIT
// Batch normalization on the processor for tensors of float or BFloat16. Own kernels
// (batch_norm_kernels.h) take channels in multiples of 16, plain loops the others. Rows are divided
// among the replica's threads, and their sums are added in thread order. The arguments are those of
// engine/ops/batch_norm.h, already checked. Used on the replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/base/bfloat16.h"
#include "engine/cpu/library.h"
#include "engine/ops/batch_norm.h"

namespace lockstep::engine::cpu {

template <class T>
void batch_norm_sums(Library& library, const BatchNormSpec& spec, std::size_t rows, const T* x,
                     double* sums);
template <class T>
void batch_norm_forward(Library& library, const BatchNormSpec& spec, std::size_t rows,
                        const BatchNormForward& call);
template <class T>
void batch_norm_gradient_sums(Library& library, const BatchNormSpec& spec, std::size_t rows,
                              const BatchNormBackward& call, Tensor dscale, Tensor dshift,
                              bool accumulate, double* sums);
template <class T>
void batch_norm_backward(Library& library, const BatchNormSpec& spec, std::size_t rows,
                         const BatchNormBackward& call);

extern template void batch_norm_sums<float>(Library&, const BatchNormSpec&, std::size_t,
                                            const float*, double*);
extern template void batch_norm_sums<BFloat16>(Library&, const BatchNormSpec&, std::size_t,
                                               const BFloat16*, double*);
extern template void batch_norm_forward<float>(Library&, const BatchNormSpec&, std::size_t,
                                               const BatchNormForward&);
extern template void batch_norm_forward<BFloat16>(Library&, const BatchNormSpec&, std::size_t,
                                                  const BatchNormForward&);
extern template void batch_norm_gradient_sums<float>(Library&, const BatchNormSpec&, std::size_t,
                                                     const BatchNormBackward&, Tensor, Tensor, bool,
                                                     double*);
extern template void batch_norm_gradient_sums<BFloat16>(Library&, const BatchNormSpec&, std::size_t,
                                                        const BatchNormBackward&, Tensor, Tensor,
                                                        bool, double*);
extern template void batch_norm_backward<float>(Library&, const BatchNormSpec&, std::size_t,
                                                const BatchNormBackward&);
extern template void batch_norm_backward<BFloat16>(Library&, const BatchNormSpec&, std::size_t,
                                                   const BatchNormBackward&);

}  // namespace lockstep::engine::cpu
