// SPDX-License-Identifier: MIT
// Convolutions of T (float or BFloat16): by own kernels where these fit and pay and the device was
// not asked for the direct method, by oneDNN otherwise. Activations lie as NHWC; weights are
// brought into the layout that the library wants, once a call. A batch goes through in pieces of a
// few rows, so that the activations of a piece are still in the cache when the next primitive reads
// them. The gradient of the input is computed as a forward convolution with turned weights where
// that is faster. The library's fused ReLU gives 0 for a NaN; everything else keeps it. Of bfloat16
// the gradients of weights and bias are summed as float32 over the batch and rounded once. The
// replica's computing thread only.
#pragma once
#include <cstddef>
#include <memory>

#include "engine/cpu/library.h"
#include "engine/cpu/rows.h"
#include "engine/cpu/shape_cache.h"
#include "engine/cpu/winograd.h"
#include "engine/device/buffer.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

template <class T>
struct ConvolutionForward;  // convolution.cpp
template <class T>
struct ConvolutionBackward;  // convolution_backward.cpp

// Rows of a piece.
std::size_t rows_of_piece(const ConvolutionSpec& spec, int threads);

template <class T>
class Convolutions {
 public:
  Convolutions(Library& library, Kernels kernels);
  ~Convolutions();

  KernelMemory memory(const ConvolutionSpec& spec, std::size_t planned) const;
  // All pointers but b are there.
  void forward(const ConvolutionSpec& spec, Rows rows, const T* x, const T* w, const T* b, T* y);
  // dx, dw, db may be null; dy is masked in place where the activation asks for it.
  void backward(const ConvolutionSpec& spec, Rows rows, const T* x, const T* y, T* dy, const T* w,
                T* dx, T* dw, T* db, bool accumulate);

  std::size_t held() const { return sums_.bytes(); }

  // Whether a convolution of so many planned rows goes by Winograd's method; in bfloat16 the
  // gradients do, and the output only where that pays too.
  bool winograd(const ConvolutionSpec& spec, std::size_t planned) const;

 private:
  bool winograd_forward_too(const ConvolutionSpec& spec, std::size_t planned) const;
  bool few_channels(const ConvolutionSpec& spec) const;
  bool lowered(const ConvolutionSpec& spec) const;
  void library_backward(const ConvolutionSpec& spec, std::size_t rows, const T* x, const T* y,
                        T* dy, const T* w, T* dx, T* dw, T* db, bool accumulate);
  void sum_gradients(const ConvolutionSpec& spec, std::size_t rows, const T* x, const T* y, T* dy,
                     const T* w, T* dx, float* dw, float* db, bool accumulate);
  Library& library_;
  Kernels kernels_;
  ShapeCache<ConvolutionSpec, ConvolutionForward<T>> forward_;
  ShapeCache<ConvolutionSpec, ConvolutionBackward<T>> backward_;
  Buffer sums_;  // of a batch's gradients of weights and bias, where T is not float32
};

}  // namespace lockstep::engine::cpu
