// SPDX-License-Identifier: MIT
// Convolutions on a GPU and their gradients. The port that cuDNN fills, and tests without a GPU
// fill by loops. One per replica, its computing thread. The first call of a shape takes the kernel
// that was kept for it, or times what the library offers, of kernels that give the same bits every
// time alone, and keeps the fastest; later ones queue it.
#pragma once
#include <cstddef>

#include "engine/cuda/stream.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

// One of the three sums of a convolution of `rows` images; activations NHWC, weights as
// engine/ops/ops.h has them, everything of one element type; sums are float32. `spec.activation`
// and `spec.bias` are part of forward alone.
struct Convolution {
  enum class Pass { kForward, kGradientOfData, kGradientOfWeights };
  Pass pass = Pass::kForward;
  ConvolutionSpec spec;
  std::size_t rows = 0;
  DType dtype = DType::kFloat32;
  bool accumulate = false;  // of gradients: added to what is there
  bool operator==(const Convolution&) const = default;
};

class Convolutions {
 public:
  virtual ~Convolutions() = default;
  // Queued, over all rows. forward: x, w, bias to y. Gradient of data: dy, w to dx. Gradient of
  // weights: x, dy to dw. In the order of these sentences: two sources, the bias or null, the
  // target.
  virtual void run(CudaStream& stream, const Convolution& call, const void* first,
                   const void* second, const void* bias, void* target) = 0;
};

}  // namespace lockstep::engine::cuda
