// SPDX-License-Identifier: MIT
// Convolutions of T (float or BFloat16), by own kernels if they fit and pay and the direct method
// was not requested, else by oneDNN. Activations are NHWC; weights are converted to the library's
// layout once per call. A batch is processed in pieces of a few rows, so that a piece's activations
// are still in the cache when the next primitive reads them. The gradient of the input is computed
// as a forward convolution with rotated weights if that is faster. The library's fused ReLU maps
// NaN to 0; everything else keeps NaN. For bfloat16, the gradients of weights and bias are summed
// as float32 over the batch and rounded once (wide_convolution.h where oneDNN lacks it). Used on
// the replica's computing thread only.
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
class WideConvolutions;      // wide_convolution.cpp

// Returns the rows of a piece.
std::size_t rows_of_piece(const ConvolutionSpec& spec, int threads);

template <class T>
class Convolutions {
 public:
  Convolutions(Library& library, Kernels kernels);
  ~Convolutions();

  KernelMemory memory(const ConvolutionSpec& spec, std::size_t planned) const;
  // Only b may be null.
  void forward(const ConvolutionSpec& spec, Rows rows, const T* x, const T* w, const T* b, T* y);
  // dx, dw and db may be null. dy is masked in place if the activation requires it.
  void backward(const ConvolutionSpec& spec, Rows rows, const T* x, const T* y, T* dy, const T* w,
                T* dx, T* dw, T* db, bool accumulate);

  std::size_t held() const { return sums_.bytes(); }

  // Returns whether a convolution with so many planned rows uses Winograd's method. In bfloat16 the
  // gradients do; the output does only if that pays too.
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
  std::unique_ptr<WideConvolutions> wide_;  // null if the library has kernels for T
  // A batch's gradients of weights and bias if T is not float32.
  Buffer sums_;
};

}  // namespace lockstep::engine::cpu
