// SPDX-License-Identifier: MIT
#include "engine/ops/ops.h"

namespace lockstep::engine {
namespace {

// If the pool's backward includes the ReLU, backward needs no extra pass over the convolution's
// outputs.
PoolSpec pool_of(const Ops& ops, const PooledConvolutionSpec& spec) {
  PoolSpec pool = spec.pool();
  pool.relu = ops.pools_relu() && spec.convolution.activation == Activation::kRelu;
  return pool;
}

// Holds the parts of the workspace: the values between both kernels, their gradients, and the
// pool's own.
struct Parts {
  Tensor values, gradients;  // rows of the call
  std::byte* pool;
  std::size_t bytes;  // size of the whole workspace

  Parts(Ops& ops, const PooledConvolutionSpec& spec, const PooledConvolutionMemory& memory,
        std::size_t rows) {
    const ConvolutionSpec& c = spec.convolution;
    const Shape shape = Shape{c.output_height(), c.output_width(), c.filters}.with_rows(rows);
    const std::size_t row = c.outputs() * size_of(ops.dtype());
    const std::size_t whole = (memory.rows * row + 63) / 64 * 64;
    values = {memory.workspace + memory.first * row, shape, ops.dtype()};
    gradients = {memory.workspace + whole + memory.first * row, shape, ops.dtype()};
    pool = memory.workspace + 2 * whole + ops.pool_workspace(spec.pool(), memory.first);
    bytes = 2 * whole + ops.pool_workspace(spec.pool(), memory.rows);
  }
};

}  // namespace

std::size_t Ops::pooled_convolution_workspace(const PooledConvolutionSpec& spec, std::size_t rows) {
  return Parts(*this, spec, {.rows = rows}, rows).bytes;
}

void Ops::pooled_convolution_forward(const StepState* state, const PooledConvolutionSpec& spec,
                                     Tensor x, Tensor w, Tensor b, Tensor y,
                                     PooledConvolutionMemory memory) {
  const Parts parts(*this, spec, memory, x.rows());
  convolution_forward(state, spec.convolution, x, w, b, parts.values);
  pool_forward(state, pool_of(*this, spec), parts.values, y, parts.pool);
}

void Ops::pooled_convolution_backward(const StepState* state, const PooledConvolutionSpec& spec,
                                      Tensor x, Tensor dy, Tensor w, Tensor dx, Tensor dw,
                                      Tensor db, PooledConvolutionMemory memory, bool accumulate) {
  const Parts parts(*this, spec, memory, x.rows());
  const PoolSpec pool = pool_of(*this, spec);
  pool_backward(state, pool, dy, parts.gradients, parts.pool);
  ConvolutionSpec convolution = spec.convolution;
  if (pool.relu) convolution.activation = Activation::kNone;
  convolution_backward(state, convolution, x, parts.values, parts.gradients, w, dx, dw, db,
                       accumulate || !memory.slice.first);
}

}  // namespace lockstep::engine
