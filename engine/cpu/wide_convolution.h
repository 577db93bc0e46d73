// SPDX-License-Identifier: MIT
// Convolutions of bfloat16 by oneDNN's float32 kernels, for processors without AVX-512, for which
// the library has none of bfloat16. A piece of the batch is widened, convolved and rounded once.
// Gradients of weights and bias stay float32 sums. Used on the replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/cpu/convolution.h"

namespace lockstep::engine::cpu {

class WideConvolutions {
 public:
  explicit WideConvolutions(Library& library);

  KernelMemory memory(const ConvolutionSpec& spec, std::size_t planned) const;
  // Only b may be null.
  void forward(const ConvolutionSpec& spec, std::size_t rows, const BFloat16* x, const BFloat16* w,
               const BFloat16* b, BFloat16* y);
  // dx, dw and db may be null. dy is masked in place if the activation requires it.
  void backward(const ConvolutionSpec& spec, std::size_t rows, const BFloat16* x, const BFloat16* y,
                BFloat16* dy, const BFloat16* w, BFloat16* dx, float* dw, float* db);

 private:
  std::size_t piece(const ConvolutionSpec& spec, std::size_t rows) const;

  Library& library_;
  Convolutions<float> wide_;
};

}  // namespace lockstep::engine::cpu
