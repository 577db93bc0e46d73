// SPDX-License-Identifier: MIT
// Products of matrices on a GPU, as dense layers need them. The port that cuBLASLt fills, and tests
// without a GPU fill by loops. One per replica, its computing thread. The first call of a shape
// looks for the fastest kernel that gives the same bits every time; later ones queue one kernel.
#pragma once
#include <cstddef>

#include "engine/cuda/stream.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

// c = op(a) op(b), + c where `accumulate`, + a bias for each column of c, then ReLU. All row-major:
// op(a) is [m, k] and op(b) [k, n]; a transposed operand lies in memory as [k, m] or [n, k].
// Everything, bias too, is of one element type; sums are float32.
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
  // Queued. `bias` null where the product has none. m, n and k are at least 1.
  virtual void run(CudaStream& stream, const Product& product, const void* a, const void* b,
                   const void* bias, void* c) = 0;
};

}  // namespace lockstep::engine::cuda
