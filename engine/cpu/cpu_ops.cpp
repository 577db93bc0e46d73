// SPDX-License-Identifier: MIT
#include "engine/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/cpu/batch_norm.h"
#include "engine/cpu/embedding.h"
#include "engine/cpu/loops.h"
#include "engine/cpu/losses.h"
#include "engine/cpu/pool.h"
#include "engine/cpu/reduce.h"
#include "engine/ops/checks.h"
#include "engine/ops/definitions.h"

namespace lockstep::engine::cpu {
namespace {

constexpr DType kType = DType::kFloat32;

float* of(const Tensor& tensor) {
  return tensor.as<float>();
}

// The elements of the rows in use, after a look whether all operands are alike.
std::size_t elements_in_use(const StepState* state, std::initializer_list<Tensor> batches) {
  const std::size_t columns = batches.begin()->columns();
  for (const Tensor& batch : batches) check_batch(batch, kType, columns, "operands of two shapes");
  return rows_in_use(state, batches) * columns;
}

void check(const ConvolutionSpec& s, const Tensor& x, const Tensor& y) {
  check_spec(s);
  check_batch(x, kType, s.inputs(), "convolution: x or dx");
  check_batch(y, kType, s.outputs(), "convolution: y or dy");
}

void check(const PoolSpec& s, const Tensor& x, const Tensor& y) {
  check_spec(s);
  check_batch(x, kType, s.inputs(), "pool: x or dx");
  check_batch(y, kType, s.outputs(), "pool: y or dy");
}

void check(const DenseSpec& s, const Tensor& x, const Tensor& y) {
  check_batch(x, kType, s.inputs, "dense: x or dx");
  check_batch(y, kType, s.outputs, "dense: y or dy");
}

}  // namespace

void CpuOps::dense_forward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor w,
                           Tensor b, Tensor y) {
  check(spec, x, y);
  check_parameter(w, kType, spec.outputs * spec.inputs, "dense: w");
  check_parameter(b, kType, spec.outputs, "dense: b");
  library_.enter();
  guarded("dense forward", [&] {
    dense_.forward(spec, rows_in_use(state, {x, y}), of(x), of(w), of(b), of(y));
  });
}

void CpuOps::dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y,
                            Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db, bool accumulate) {
  check(spec, x, y);
  check(spec, dx, dy);
  check_parameter(w, kType, spec.outputs * spec.inputs, "dense: w");
  check_parameter(dw, kType, spec.outputs * spec.inputs, "dense: dw");
  check_parameter(db, kType, spec.outputs, "dense: db");
  library_.enter();
  guarded("dense backward", [&] {
    dense_.backward(spec, {rows_in_use(state, {x, y, dy, dx}), x.rows()}, of(x), of(y), of(dy),
                    of(w), of(dx), of(dw), of(db), accumulate);
  });
}

void CpuOps::convolution_forward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                 Tensor w, Tensor b, Tensor y) {
  check(spec, x, y);
  check_parameter(w, kType, spec.weights(), "convolution: w");
  check_parameter(b, kType, spec.filters, "convolution: b");
  library_.enter();
  guarded("convolution forward", [&] {
    convolutions_.forward(spec, {rows_in_use(state, {x, y}), x.rows()}, of(x), of(w), of(b), of(y));
  });
}

void CpuOps::convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                  Tensor y, Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                  bool accumulate) {
  check(spec, x, y);
  check(spec, dx, dy);
  check_parameter(w, kType, spec.weights(), "convolution: w");
  check_parameter(dw, kType, spec.weights(), "convolution: dw");
  check_parameter(db, kType, spec.filters, "convolution: db");
  library_.enter();
  guarded("convolution backward", [&] {
    convolutions_.backward(spec, {rows_in_use(state, {x, y, dy, dx}), x.rows()}, of(x), of(y),
                           of(dy), of(w), of(dx), of(dw), of(db), accumulate);
  });
}

std::size_t CpuOps::pool_workspace(const PoolSpec& spec, std::size_t rows) {
  check_spec(spec);
  return cpu::pool_workspace(spec, rows);
}

void CpuOps::pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                          std::byte* workspace) {
  check(spec, x, y);
  cpu::pool_forward(spec, rows_in_use(state, {x, y}), of(x), of(y), workspace);
}

void CpuOps::pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy, Tensor dx,
                           const std::byte* workspace) {
  check(spec, dx, dy);
  if (dx) cpu::pool_backward(spec, rows_in_use(state, {dy, dx}), of(dy), of(dx), workspace);
}

std::size_t CpuOps::pooled_convolution_workspace(const PooledConvolutionSpec& spec,
                                                 std::size_t rows) {
  check_spec(spec.convolution);
  check_spec(spec.pool());
  if (!pooled_convolution_fits(spec)) return Ops::pooled_convolution_workspace(spec, rows);
  return pooled_.workspace(spec, rows);
}

KernelMemory CpuOps::pooled_convolution_memory(const PooledConvolutionSpec& spec,
                                               std::size_t rows) const {
  return pooled_convolution_fits(spec) ? pooled_.memory(spec, rows)
                                       : convolution_memory(spec.convolution, rows);
}

void CpuOps::pooled_convolution_forward(const StepState* state, const PooledConvolutionSpec& spec,
                                        Tensor x, Tensor w, Tensor b, Tensor y,
                                        PooledConvolutionMemory memory) {
  if (!pooled_convolution_fits(spec)) {
    return Ops::pooled_convolution_forward(state, spec, x, w, b, y, memory);
  }
  check(spec.convolution, x, {});
  check(spec.pool(), {}, y);
  check_parameter(w, kType, spec.convolution.weights(), "pooled convolution: w");
  check_parameter(b, kType, spec.convolution.filters, "pooled convolution: b");
  library_.enter();
  guarded("pooled convolution forward", [&] {
    pooled_.forward(spec, rows_in_use(state, {x, y}), of(x), of(w), of(b), of(y), memory);
  });
}

void CpuOps::pooled_convolution_backward(const StepState* state, const PooledConvolutionSpec& spec,
                                         Tensor x, Tensor dy, Tensor w, Tensor dx, Tensor dw,
                                         Tensor db, PooledConvolutionMemory memory,
                                         bool accumulate) {
  if (!pooled_convolution_fits(spec)) {
    return Ops::pooled_convolution_backward(state, spec, x, dy, w, dx, dw, db, memory, accumulate);
  }
  check(spec.convolution, x, {});
  check(spec.convolution, dx, {});
  check(spec.pool(), {}, dy);
  check_parameter(w, kType, spec.convolution.weights(), "pooled convolution: w");
  check_parameter(dw, kType, spec.convolution.weights(), "pooled convolution: dw");
  check_parameter(db, kType, spec.convolution.filters, "pooled convolution: db");
  library_.enter();
  guarded("pooled convolution backward", [&] {
    pooled_.backward(spec, rows_in_use(state, {x, dy, dx}), of(x), of(dy), of(w), of(dx), of(dw),
                     of(db), memory, accumulate);
  });
}

void CpuOps::batch_norm_sums(const StepState* state, const BatchNormSpec& spec, Tensor x,
                             double* sums) {
  check_batch(x, kType, spec.columns(), "batch norm: x");
  cpu::batch_norm_sums<float>(library_, spec, rows_in_use(state, {x}), of(x), sums);
}

void CpuOps::batch_norm_forward(const StepState* state, const BatchNormSpec& spec,
                                const BatchNormForward& call) {
  check_call(spec, kType, call);
  cpu::batch_norm_forward<float>(library_, spec, rows_in_use(state, {call.x, call.other, call.y}),
                                 call);
}

void CpuOps::batch_norm_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                      const BatchNormBackward& call, Tensor dscale, Tensor dshift,
                                      bool accumulate, double* sums) {
  check_call(spec, kType, call);
  check_parameter(dscale, kType, spec.channels, "batch norm: dscale");
  check_parameter(dshift, kType, spec.channels, "batch norm: dshift");
  cpu::batch_norm_gradient_sums<float>(library_, spec, rows_in_use(state, {call.x, call.dy}), call,
                                       dscale, dshift, accumulate, sums);
}

void CpuOps::batch_norm_backward(const StepState* state, const BatchNormSpec& spec,
                                 const BatchNormBackward& call) {
  check_call(spec, kType, call);
  cpu::batch_norm_backward<float>(
      library_, spec, rows_in_use(state, {call.x, call.dy, call.dx, call.dother}), call);
}

void CpuOps::relu(const StepState* state, Tensor x, Tensor y) {
  cpu::relu(of(x), of(y), elements_in_use(state, {x, y}));
}

void CpuOps::relu_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) {
  mask(of(y), of(dy), of(dx), elements_in_use(state, {y, dy, dx}));
}

void CpuOps::tanh(const StepState* state, Tensor x, Tensor y) {
  cpu::tanh(of(x), of(y), elements_in_use(state, {x, y}));
}

void CpuOps::tanh_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) {
  cpu::tanh_gradient(of(y), of(dy), of(dx), elements_in_use(state, {y, dy, dx}));
}

void CpuOps::add(const StepState* state, Tensor a, Tensor b, Tensor y) {
  cpu::add(of(a), of(b), of(y), elements_in_use(state, {a, b, y}));
}

void CpuOps::dropout(const StepState* state, const DropoutSpec& spec, Tensor x, Tensor y) {
  invariant(spec.rate >= 0 && spec.rate < 1, "a dropout rate outside [0, 1)");
  elements_in_use(state, {x, y});
  const std::size_t rows = rows_in_use(state, {x, y}), columns = x.columns();
  const float kept = float(1 / (1 - spec.rate));
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = of(x) + r * columns;
    float* to = of(y) + r * columns;
    for (std::size_t j = 0; j < columns; j += 4) {
      const auto bits = dropout_bits(spec.key, state->ids[r], state->step, j / 4);
      for (std::size_t i = j; i < std::min(j + 4, columns); ++i) {
        to[i] = dropout_keeps(bits[i - j], spec.rate) ? from[i] * kept : 0.0f;
      }
    }
  }
}

void CpuOps::embedding_forward(const StepState* state, const EmbeddingSpec& spec,
                               const std::uint32_t* places, Tensor w, Tensor y) {
  const std::size_t rows = rows_in_use(state, {y});
  check_batch(y, kType, spec.outputs(), "embedding: y");
  check_parameter(w, kType, w.elements(), "embedding: w");
  check_places(spec, rows, places, w);
  cpu::embedding_forward(library_.threads(), spec, rows, places, of(w), of(y));
}

void CpuOps::embedding_backward(const StepState* state, const EmbeddingSpec& spec,
                                const std::uint32_t* places, Tensor dy, Tensor dw,
                                bool accumulate) {
  if (!dw) return;
  const std::size_t rows = rows_in_use(state, {dy});
  check_batch(dy, kType, spec.outputs(), "embedding: dy");
  check_parameter(dw, kType, dw.elements(), "embedding: dw");
  const std::size_t table = check_places(spec, rows, places, dw);
  cpu::embedding_backward(library_.threads(), spec, rows, places, of(dy), table, of(dw),
                          accumulate);
}

void CpuOps::softmax_cross_entropy(const StepState* state, double smoothing, Tensor logits,
                                   Tensor target, Tensor dlogits, Tensor losses, Tensor correct) {
  const std::size_t rows = rows_in_use(state, {logits, target, dlogits, losses, correct});
  const std::size_t classes = logits.columns();
  check_batch(logits, kType, classes, "cross entropy: logits");
  check_batch(dlogits, kType, classes, "cross entropy: dlogits");
  check_batch(target, DType::kFloat32, 1, "cross entropy: target");
  check_batch(losses, DType::kFloat64, 1, "cross entropy: losses");
  check_batch(correct, DType::kFloat64, 1, "cross entropy: correct");
  cpu::softmax_cross_entropy(rows, classes, smoothing, of(logits), of(target),
                             state->inverse_examples * state->loss_scale, of(dlogits),
                             losses.as<double>(), correct.as<double>());
}

void CpuOps::squared_error(const StepState* state, Tensor y, Tensor target, Tensor dy,
                           Tensor losses) {
  const std::size_t rows = rows_in_use(state, {y, target, dy, losses});
  const std::size_t columns = y.columns();
  check_batch(y, kType, columns, "squared error: y");
  check_batch(dy, kType, columns, "squared error: dy");
  check_batch(target, DType::kFloat32, columns, "squared error: target");
  check_batch(losses, DType::kFloat64, 1, "squared error: losses");
  cpu::squared_error(rows, columns, of(y), of(target), state->inverse_examples * state->loss_scale,
                     of(dy), losses.as<double>());
}

void CpuOps::softmax(const StepState* state, Tensor logits, Tensor probabilities) {
  elements_in_use(state, {logits, probabilities});
  cpu::softmax(rows_in_use(state, {logits, probabilities}), logits.columns(), of(logits),
               of(probabilities));
}

double CpuOps::batch_sum(const StepState* state, Tensor rows) {
  check_batch(rows, DType::kFloat64, 1, "batch sum: rows");
  return balanced_sum(rows.as<double>(), rows_in_use(state, {rows}));
}

void CpuOps::load(const float* from, Tensor x) {
  check_parameter(x, kType, x.elements(), "load: x");
  std::copy_n(from, x.elements(), of(x));
}

std::uint64_t CpuOps::checksum(const std::byte* data, std::size_t bytes, std::size_t offset) const {
  const std::size_t words = bytes / 4;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + 4 * i, 4);
    sum += checksum_word(word, offset + i);
  }
  if (bytes % 4 != 0) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + 4 * words, bytes % 4);
    sum += checksum_word(word, offset + words);
  }
  return sum;
}

void CpuOps::reduce(const ReduceArguments& arguments) const {
  cpu::reduce(arguments);
}

}  // namespace lockstep::engine::cpu
