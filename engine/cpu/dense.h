// SPDX-License-Identifier: MIT
// Dense layers with weights in their plain layout; nothing is reordered. oneDNN computes the matrix
// products, except for the gradients of wide float32 layers, which the own kernel computes
// (product_kernels.h). For bfloat16, products are summed as float32 and rounded once. The bias is
// part of the product; ReLU is not, because the library's ReLU maps NaN to 0. Temporary data lies
// in the library's scratch memory, so with AVX-512 a steady step makes no large allocations.
// Without it, the library packs into memory of its own and has no products of bfloat16, so operands
// are widened. Used on the replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/cpu/library.h"
#include "engine/cpu/product_kernels.h"
#include "engine/cpu/rows.h"
#include "engine/cpu/shape_cache.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

class LibraryProduct;  // dense.cpp
struct DenseCalls;     // dense.cpp

template <class T>  // float or BFloat16
class DenseLayers {
 public:
  // Takes a library and `kernels`; kDirect disables the own kernel.
  DenseLayers(Library& library, Kernels kernels);
  ~DenseLayers();
  KernelMemory memory(const DenseSpec& spec, std::size_t planned) const;
  void forward(const DenseSpec& spec, std::size_t rows, const T* x, const T* w, const T* b, T* y);
  // dx, dw and db may be null. dy is masked in place if the activation requires it.
  void backward(const DenseSpec& spec, Rows rows, const T* x, const T* y, T* dy, const T* w, T* dx,
                T* dw, T* db, bool accumulate);

 private:
  bool own(const DenseSpec& spec, std::size_t planned) const;
  void multiply(const Product& product);
  DenseCalls& calls(const DenseSpec& spec, std::size_t rows);
  void run(LibraryProduct& product, const T* a, const T* b, const T* bias, T* c);
  Library& library_;
  Kernels kernels_;
  bool widens_;  // the library has no products of T
  ShapeCache<DenseSpec, DenseCalls> calls_;
};

}  // namespace lockstep::engine::cpu
