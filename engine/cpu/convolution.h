// SPDX-License-Identifier: MIT
// Convolutions: by own kernels where these fit and pay and the device was not asked for the direct
// method, by oneDNN otherwise. Activations lie as NHWC; weights are brought into the layout that
// the library wants, once a call. A batch goes through in pieces of a few rows, so that the
// activations of a piece are still in the cache when the next primitive reads them. The gradient of
// the input is computed as a forward convolution with turned weights where that is faster. The
// library's fused ReLU gives 0 for a NaN; everything else keeps it. The replica's computing thread
// only.
#pragma once
#include <cstddef>
#include <memory>

#include "engine/cpu/library.h"
#include "engine/cpu/rows.h"
#include "engine/cpu/shape_cache.h"
#include "engine/cpu/winograd.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

struct ConvolutionForward;   // convolution.cpp
struct ConvolutionBackward;  // convolution_backward.cpp

// Rows of a piece.
std::size_t rows_of_piece(const ConvolutionSpec& spec, int threads);

class Convolutions {
 public:
  Convolutions(Library& library, Kernels kernels);
  ~Convolutions();

  KernelMemory memory(const ConvolutionSpec& spec, std::size_t planned) const;
  // All pointers but b are there.
  void forward(const ConvolutionSpec& spec, Rows rows, const float* x, const float* w,
               const float* b, float* y);
  // dx, dw, db may be null; dy is masked in place where the activation asks for it.
  void backward(const ConvolutionSpec& spec, Rows rows, const float* x, const float* y, float* dy,
                const float* w, float* dx, float* dw, float* db, bool accumulate);

  // Whether a convolution of so many planned rows goes by Winograd's method.
  bool winograd(const ConvolutionSpec& spec, std::size_t planned) const;

 private:
  bool few_channels(const ConvolutionSpec& spec) const;
  bool lowered(const ConvolutionSpec& spec) const;
  void library_backward(const ConvolutionSpec& spec, std::size_t rows, const float* x,
                        const float* y, float* dy, const float* w, float* dx, float* dw, float* db,
                        bool accumulate);
  Library& library_;
  Kernels kernels_;
  ShapeCache<ConvolutionSpec, ConvolutionForward> forward_;
  ShapeCache<ConvolutionSpec, ConvolutionBackward> backward_;
};

}  // namespace lockstep::engine::cpu
