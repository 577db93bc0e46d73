// SPDX-License-Identifier: MIT
#include "engine/cpu/dense.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>

#include "engine/cpu/loops.h"

namespace lockstep::engine::cpu {
namespace {

struct Matrix {
  const float* data;
  std::size_t stride;  // elements from row to row
  bool turned = false;
};

// c = a b + (accumulate ? c : 0); c has `rows` x `columns`, and there are `depth` products a sum.
void multiply(Matrix a, Matrix b, float* c, std::size_t rows, std::size_t columns,
              std::size_t depth, bool accumulate) {
  using dnnl::memory;
  const dnnl::status status =
      dnnl::sgemm(a.turned ? 'T' : 'N', b.turned ? 'T' : 'N', memory::dim(rows),
                  memory::dim(columns), memory::dim(depth), 1.0f, a.data, memory::dim(a.stride),
                  b.data, memory::dim(b.stride), accumulate ? 1.0f : 0.0f, c, memory::dim(columns));
  if (status != dnnl::status::success) {
    throw dnnl::error(static_cast<dnnl_status_t>(status), "the matrix product failed");
  }
}

}  // namespace

void dense_forward(const DenseSpec& s, std::size_t rows, const float* x, const float* w,
                   const float* b, float* y) {
  if (rows == 0) return;
  multiply({x, s.inputs}, {w, s.inputs, true}, y, rows, s.outputs, s.inputs, false);
  const bool cut = s.activation == Activation::kRelu;
  if (s.bias) {
    add_bias(y, b, rows, s.outputs, cut);
  } else if (cut) {
    relu(y, y, rows * s.outputs);
  }
}

void dense_backward(const DenseSpec& s, std::size_t rows, const float* x, const float* y, float* dy,
                    const float* w, float* dx, float* dw, float* db, bool accumulate) {
  if (rows == 0) {
    if (dw != nullptr && !accumulate) std::fill_n(dw, s.outputs * s.inputs, 0.0f);
    if (db != nullptr && !accumulate) std::fill_n(db, s.outputs, 0.0f);
    return;
  }
  if (s.activation == Activation::kRelu) mask(y, dy, dy, rows * s.outputs);
  if (s.bias && db != nullptr) column_sums(dy, rows, s.outputs, db, accumulate);
  if (dw != nullptr) {
    multiply({dy, s.outputs, true}, {x, s.inputs}, dw, s.outputs, s.inputs, rows, accumulate);
  }
  if (dx != nullptr) {
    multiply({dy, s.outputs}, {w, s.inputs}, dx, rows, s.inputs, s.outputs, false);
  }
}

}  // namespace lockstep::engine::cpu
