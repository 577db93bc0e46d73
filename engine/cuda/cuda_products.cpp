// SPDX-License-Identifier: MIT
// Dense layers and convolutions: products by the libraries, over all rows that were planned, and
// what is left for own kernels: masks of fused ReLUs, gradients of biases.
#include "engine/base/error.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/kernels/column_sums.h"
#include "engine/ops/checks.h"

namespace lockstep::engine::cuda {

void CudaOps::dense_forward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor w,
                            Tensor b, Tensor y) {
  check_batch(x, dtype_, spec.inputs, "x of a dense layer");
  check_batch(y, dtype_, spec.outputs, "y of a dense layer");
  check_parameter(w, dtype_, spec.inputs * spec.outputs, "weights of a dense layer");
  check_parameter(b, dtype_, spec.outputs, "the bias of a dense layer");
  invariant(state != nullptr && x.rows() == y.rows(), "a dense layer of two batches");
  products_->run(stream_,
                 {.dtype = dtype_,
                  .m = x.rows(),
                  .n = spec.outputs,
                  .k = spec.inputs,
                  .transpose_b = true,
                  .bias = bool(b),
                  .relu = spec.activation == Activation::kRelu},
                 x.data, w.data, b.data, y.data);
}

void CudaOps::dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y,
                             Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                             bool accumulate) {
  check_batch(x, dtype_, spec.inputs, "x of a dense layer");
  check_batch(dy, dtype_, spec.outputs, "dy of a dense layer");
  check_batch(dx, dtype_, spec.inputs, "dx of a dense layer");
  check_parameter(dw, dtype_, spec.inputs * spec.outputs, "the gradient of weights");
  bias_gradient(state, 1, spec.outputs, spec.activation, y, dy, db, accumulate);
  const std::size_t rows = dy.rows();
  if (dx) {
    products_->run(stream_, {.dtype = dtype_, .m = rows, .n = spec.inputs, .k = spec.outputs},
                   dy.data, w.data, nullptr, dx.data);
  }
  if (!dw) return;
  clear_rest(state, x);
  clear_rest(state, dy);
  products_->run(stream_,
                 {.dtype = dtype_,
                  .m = spec.outputs,
                  .n = spec.inputs,
                  .k = rows,
                  .transpose_a = true,
                  .accumulate = accumulate},
                 dy.data, x.data, nullptr, dw.data);
}

void CudaOps::convolution_forward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                  Tensor w, Tensor b, Tensor y) {
  check_spec(spec);
  check_batch(x, dtype_, spec.inputs(), "x of a convolution");
  check_batch(y, dtype_, spec.outputs(), "y of a convolution");
  check_parameter(w, dtype_, spec.weights(), "weights of a convolution");
  check_parameter(b, dtype_, spec.filters, "the bias of a convolution");
  invariant(state != nullptr && x.rows() == y.rows(), "a convolution of two batches");
  ConvolutionSpec given = spec;
  given.bias = bool(b);
  convolutions_->run(
      stream_,
      {.pass = Convolution::Pass::kForward, .spec = given, .rows = x.rows(), .dtype = dtype_},
      x.data, w.data, b.data, y.data);
}

void CudaOps::convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                   Tensor y, Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                   bool accumulate) {
  check_spec(spec);
  check_batch(x, dtype_, spec.inputs(), "x of a convolution");
  check_batch(dy, dtype_, spec.outputs(), "dy of a convolution");
  check_batch(dx, dtype_, spec.inputs(), "dx of a convolution");
  check_parameter(dw, dtype_, spec.weights(), "the gradient of weights");
  bias_gradient(state, spec.output_height() * spec.output_width(), spec.filters, spec.activation, y,
                dy, db, accumulate);
  // Neither is part of these sums.
  ConvolutionSpec bare = spec;
  bare.bias = false;
  bare.activation = Activation::kNone;
  Convolution call{.spec = bare, .rows = dy.rows(), .dtype = dtype_};
  if (dx) {
    call.pass = Convolution::Pass::kGradientOfData;
    convolutions_->run(stream_, call, dy.data, w.data, nullptr, dx.data);
  }
  if (!dw) return;
  clear_rest(state, x);
  clear_rest(state, dy);
  call.pass = Convolution::Pass::kGradientOfWeights;
  call.accumulate = accumulate;
  convolutions_->run(stream_, call, x.data, dy.data, nullptr, dw.data);
}

// Of `positions` x `channels` numbers a row: dy becomes zero where a fused ReLU let nothing pass,
// and db the sum of the rest, where it is wanted. Both in one pass.
void CudaOps::bias_gradient(const StepState* state, std::size_t positions, std::size_t channels,
                            Activation activation, Tensor y, Tensor dy, Tensor db,
                            bool accumulate) {
  const bool masks = activation == Activation::kRelu;
  if (masks) check_batch(y, dtype_, positions * channels, "y of a layer");
  if (!db) {
    if (masks)
      launch(grid_for(dy.elements()), MaskGradient{state, positions * channels, y.data, dy.data});
    return;
  }
  check_parameter(db, dtype_, channels, "the gradient of a bias");
  const std::size_t lines = dy.rows() * positions;
  const unsigned chunks = line_chunks(lines, channels);
  auto* const partial =
      reinterpret_cast<double*>(scratch(std::size_t(chunks) * channels * sizeof(double)));
  launch({.blocks = line_tiles(channels), .rows = chunks, .threads = kLineThreads},
         ColumnSums{state, positions, channels, masks ? y.data : nullptr, dy.data, masks, chunks,
                    partial});
  launch({.blocks = finish_blocks(channels), .threads = kLineThreads},
         ColumnSumsFinish{channels, chunks, partial, db.data, accumulate});
}

}  // namespace lockstep::engine::cuda
