// SPDX-License-Identifier: MIT
// The interface to matrix products on a GPU for dense layers. cuBLASLt implements it; tests without
// a GPU implement it with loops. Each replica has one, for its computing thread. The first call of
// a shape searches for the fastest deterministic kernel; later calls queue it.
#pragma once
#include <cstddef>

#include "engine/cuda/stream.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

// Describes a product c = op(a) op(b), plus c if `accumulate`, plus a bias for each column of c,
// then ReLU. All matrices are row-major: op(a) is [m, k] and op(b) [k, n]; a transposed operand is
// stored as [k, m] or [n, k]. All operands have one element type, including the bias; sums are
// float32.
struct Product {
  DType dtype = DType::kFloat32;
  std::size_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false, bias = false, relu = false;
  bool operator==(const Product&) const = default;
};

class Products {
 public:
  virtual ~Products() = default;
  // Queues the product. `bias` is null if the product has none. m, n and k are at least 1.
  virtual void run(CudaStream& stream, const Product& product, const void* a, const void* b,
                   const void* bias, void* c) = 0;
};

}  // namespace lockstep::engine::cuda
