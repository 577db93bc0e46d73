// SPDX-License-Identifier: MIT
// Dense layers, weights in their plain layout: nothing is reordered. Products of matrices are
// oneDNN's, but for the gradients of wide layers of float32, which are the own kernel's
// (product_kernels.h). Of bfloat16 the products are summed as float32 and rounded once.
// The bias is part of the product; ReLU is not, since the library's gives 0 for a NaN. What a
// product needs besides lies in the library's scratch memory, so a steady step allocates nothing
// large. The replica's computing thread only.
#pragma once
#include <cstddef>

#include "engine/cpu/library.h"
#include "engine/cpu/product_kernels.h"
#include "engine/cpu/rows.h"
#include "engine/cpu/shape_cache.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

struct DenseCalls;  // dense.cpp

template <class T>  // float or BFloat16
class DenseLayers {
 public:
  // `kernels`: kDirect leaves the own one out.
  DenseLayers(Library& library, Kernels kernels);
  ~DenseLayers();
  KernelMemory memory(const DenseSpec& spec, std::size_t planned) const;
  void forward(const DenseSpec& spec, std::size_t rows, const T* x, const T* w, const T* b, T* y);
  // dx, dw, db may be null; dy is masked in place where the activation asks for it.
  void backward(const DenseSpec& spec, Rows rows, const T* x, const T* y, T* dy, const T* w, T* dx,
                T* dw, T* db, bool accumulate);

 private:
  bool own(const DenseSpec& spec, std::size_t planned) const;
  void multiply(const Product& product);
  DenseCalls& calls(const DenseSpec& spec, std::size_t rows);
  Library& library_;
  Kernels kernels_;
  ShapeCache<DenseSpec, DenseCalls> calls_;
};

}  // namespace lockstep::engine::cpu
