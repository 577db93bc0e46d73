// SPDX-License-Identifier: MIT
// A convolution followed by a max pool, in one pass: by the Winograd kernels if they fit, else in
// pieces of a few rows, so that the values in between are never stored for the whole batch. The
// workspace holds the derived weights and, per output, the winning position in its window, or a
// value that no position has if ReLU cut the output. Used on the replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/cpu/convolution.h"
#include "engine/cpu/library.h"
#include "engine/device/buffer.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

// Returns whether the positions of a window, and one more value, fit into a byte.
bool pooled_convolution_fits(const PooledConvolutionSpec& spec);

template <class T>  // float or BFloat16
class PooledConvolutions {
 public:
  PooledConvolutions(Library& library, Convolutions<T>& convolutions)
      : library_(library), convolutions_(convolutions) {}
  std::size_t workspace(const PooledConvolutionSpec& spec, std::size_t rows) const;
  KernelMemory memory(const PooledConvolutionSpec& spec, std::size_t rows) const;
  std::size_t held() const { return between_.bytes(); }
  void forward(const PooledConvolutionSpec& spec, std::size_t rows, const T* x, const T* w,
               const T* b, T* y, const PooledConvolutionMemory& memory);
  // Computes the gradients. dx, dw and db may be null.
  void backward(const PooledConvolutionSpec& spec, std::size_t rows, const T* x, const T* dy,
                const T* w, T* dx, T* dw, T* db, const PooledConvolutionMemory& memory,
                bool accumulate);

 private:
  bool winograd(const PooledConvolutionSpec& spec, std::size_t planned) const;
  std::size_t planes(const PooledConvolutionSpec& spec, std::size_t planned) const;  // bytes
  WinogradMemory parts(const PooledConvolutionSpec& spec,
                       const PooledConvolutionMemory& memory) const;
  std::size_t piece(const PooledConvolutionSpec& spec, std::size_t rows) const;
  T* between(std::size_t count);
  Library& library_;
  Convolutions<T>& convolutions_;
  Buffer between_;  // a piece's convolution output or its gradient
};

}  // namespace lockstep::engine::cpu
