// SPDX-License-Identifier: MIT
// The interface to convolutions on a GPU and their gradients. cuDNN implements it; tests without a
// GPU implement it with loops. Each replica has one, for its computing thread. The first call of a
// shape takes the cached kernel, or times the deterministic kernels of the library and keeps the
// fastest. Later calls queue it.
#pragma once
#include <cstddef>

#include "engine/cuda/stream.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

// One of the three passes of a convolution over `rows` images. Activations are NHWC, weights are
// laid out as in engine/ops/ops.h, and all operands have one element type. Sums are float32.
// `spec.activation` and `spec.bias` apply to the forward pass only.
struct Convolution {
  enum class Pass { kForward, kGradientOfData, kGradientOfWeights };
  Pass pass = Pass::kForward;
  ConvolutionSpec spec;
  std::size_t rows = 0;
  DType dtype = DType::kFloat32;
  bool accumulate = false;  // adds a gradient to its target
  bool operator==(const Convolution&) const = default;
};

class Convolutions {
 public:
  virtual ~Convolutions() = default;
  // Queues the pass over all rows. The operands are x, w, bias and y for the forward pass; dy, w,
  // null and dx for the gradient of data; x, dy, null and dw for the gradient of weights. `bias`
  // may be null.
  virtual void run(CudaStream& stream, const Convolution& call, const void* first,
                   const void* second, const void* bias, void* target) = 0;
};

}  // namespace lockstep::engine::cuda
