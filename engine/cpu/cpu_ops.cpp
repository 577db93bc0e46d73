// SPDX-License-Identifier: MIT
#include "engine/cpu/cpu_ops.h"

#include <algorithm>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/cpu/batch_norm.h"
#include "engine/cpu/bfloat16_loops.h"
#include "engine/cpu/checksum.h"
#include "engine/cpu/embedding.h"
#include "engine/cpu/loops.h"
#include "engine/cpu/losses.h"
#include "engine/cpu/pool.h"
#include "engine/cpu/reduce.h"
#include "engine/ops/checks.h"
#include "engine/ops/definitions.h"

namespace lockstep::engine::cpu {
namespace {

// Gives numbers as float32 to kernels that have no other type. float32 numbers stay in place;
// others are converted to a separate buffer and back.
class Widened {
 public:
  // Uses `memory` from index `at` on, for bfloat16 numbers.
  Widened(float* numbers, float*, std::size_t) : numbers_(numbers) {}
  Widened(BFloat16* numbers, float* memory, std::size_t at)
      : narrow_(numbers), numbers_(numbers == nullptr ? nullptr : memory + at) {}
  float* data() const { return numbers_; }
  float* load(std::size_t count) const {
    if (narrow_ != nullptr) widen(narrow_, numbers_, count);
    return numbers_;
  }
  void store(std::size_t count) const {
    if (narrow_ != nullptr) narrow(numbers_, narrow_, count);
  }

 private:
  BFloat16* narrow_ = nullptr;
  float* numbers_ = nullptr;
};

// Returns the number of elements in use. Checks that all operands have the same type and columns.
std::size_t elements_in_use(DType type, const StepState* state,
                            std::initializer_list<Tensor> batches) {
  const std::size_t columns = batches.begin()->columns();
  for (const Tensor& batch : batches) check_batch(batch, type, columns, "operands of two shapes");
  return rows_in_use(state, batches) * columns;
}

void check(DType type, const ConvolutionSpec& s, const Tensor& x, const Tensor& y) {
  check_spec(s);
  check_batch(x, type, s.inputs(), "convolution: x or dx");
  check_batch(y, type, s.outputs(), "convolution: y or dy");
}

void check(DType type, const PoolSpec& s, const Tensor& x, const Tensor& y) {
  check_spec(s);
  check_batch(x, type, s.inputs(), "pool: x or dx");
  check_batch(y, type, s.outputs(), "pool: y or dy");
}

void check(DType type, const DenseSpec& s, const Tensor& x, const Tensor& y) {
  check_batch(x, type, s.inputs, "dense: x or dx");
  check_batch(y, type, s.outputs, "dense: y or dy");
}

}  // namespace

template <class T>
void CpuOps<T>::dense_forward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor w,
                              Tensor b, Tensor y) {
  check(kType, spec, x, y);
  check_parameter(w, kType, spec.outputs * spec.inputs, "dense: w");
  check_parameter(b, kType, spec.outputs, "dense: b");
  library_.enter();
  guarded("dense forward", [&] {
    dense_.forward(spec, rows_in_use(state, {x, y}), of(x), of(w), of(b), of(y));
  });
}

template <class T>
void CpuOps<T>::dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y,
                               Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                               bool accumulate) {
  check(kType, spec, x, y);
  check(kType, spec, dx, dy);
  check_parameter(w, kType, spec.outputs * spec.inputs, "dense: w");
  check_parameter(dw, kType, spec.outputs * spec.inputs, "dense: dw");
  check_parameter(db, kType, spec.outputs, "dense: db");
  library_.enter();
  guarded("dense backward", [&] {
    dense_.backward(spec, {rows_in_use(state, {x, y, dy, dx}), x.rows()}, of(x), of(y), of(dy),
                    of(w), of(dx), of(dw), of(db), accumulate);
  });
}

template <class T>
void CpuOps<T>::convolution_forward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                    Tensor w, Tensor b, Tensor y) {
  check(kType, spec, x, y);
  check_parameter(w, kType, spec.weights(), "convolution: w");
  check_parameter(b, kType, spec.filters, "convolution: b");
  library_.enter();
  guarded("convolution forward", [&] {
    convolutions_.forward(spec, {rows_in_use(state, {x, y}), x.rows()}, of(x), of(w), of(b), of(y));
  });
}

template <class T>
void CpuOps<T>::convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                     Tensor y, Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                     bool accumulate) {
  check(kType, spec, x, y);
  check(kType, spec, dx, dy);
  check_parameter(w, kType, spec.weights(), "convolution: w");
  check_parameter(dw, kType, spec.weights(), "convolution: dw");
  check_parameter(db, kType, spec.filters, "convolution: db");
  library_.enter();
  guarded("convolution backward", [&] {
    convolutions_.backward(spec, {rows_in_use(state, {x, y, dy, dx}), x.rows()}, of(x), of(y),
                           of(dy), of(w), of(dx), of(dw), of(db), accumulate);
  });
}

template <class T>
std::size_t CpuOps<T>::pool_workspace(const PoolSpec& spec, std::size_t rows) {
  check_spec(spec);
  return cpu::pool_workspace(spec, rows);
}

template <class T>
void CpuOps<T>::pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                             std::byte* workspace) {
  check(kType, spec, x, y);
  cpu::pool_forward(spec, rows_in_use(state, {x, y}), of(x), of(y), workspace);
}

template <class T>
void CpuOps<T>::pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy, Tensor dx,
                              const std::byte* workspace) {
  check(kType, spec, dx, dy);
  if (dx)
    cpu::pool_backward(library_, spec, rows_in_use(state, {dy, dx}), of(dy), of(dx), workspace);
}

template <class T>
std::size_t CpuOps<T>::pooled_convolution_workspace(const PooledConvolutionSpec& spec,
                                                    std::size_t rows) {
  check_spec(spec.convolution);
  check_spec(spec.pool());
  if (!pooled_convolution_fits(spec)) return Ops::pooled_convolution_workspace(spec, rows);
  return pooled_.workspace(spec, rows);
}

template <class T>
KernelMemory CpuOps<T>::pooled_convolution_memory(const PooledConvolutionSpec& spec,
                                                  std::size_t rows) const {
  return pooled_convolution_fits(spec) ? pooled_.memory(spec, rows)
                                       : convolution_memory(spec.convolution, rows);
}

template <class T>
void CpuOps<T>::pooled_convolution_forward(const StepState* state,
                                           const PooledConvolutionSpec& spec, Tensor x, Tensor w,
                                           Tensor b, Tensor y, PooledConvolutionMemory memory) {
  if (!pooled_convolution_fits(spec)) {
    return Ops::pooled_convolution_forward(state, spec, x, w, b, y, memory);
  }
  check(kType, spec.convolution, x, {});
  check(kType, spec.pool(), {}, y);
  check_parameter(w, kType, spec.convolution.weights(), "pooled convolution: w");
  check_parameter(b, kType, spec.convolution.filters, "pooled convolution: b");
  library_.enter();
  guarded("pooled convolution forward", [&] {
    pooled_.forward(spec, rows_in_use(state, {x, y}), of(x), of(w), of(b), of(y), memory);
  });
}

template <class T>
void CpuOps<T>::pooled_convolution_backward(const StepState* state,
                                            const PooledConvolutionSpec& spec, Tensor x, Tensor dy,
                                            Tensor w, Tensor dx, Tensor dw, Tensor db,
                                            PooledConvolutionMemory memory, bool accumulate) {
  if (!pooled_convolution_fits(spec)) {
    return Ops::pooled_convolution_backward(state, spec, x, dy, w, dx, dw, db, memory, accumulate);
  }
  check(kType, spec.convolution, x, {});
  check(kType, spec.convolution, dx, {});
  check(kType, spec.pool(), {}, dy);
  check_parameter(w, kType, spec.convolution.weights(), "pooled convolution: w");
  check_parameter(dw, kType, spec.convolution.weights(), "pooled convolution: dw");
  check_parameter(db, kType, spec.convolution.filters, "pooled convolution: db");
  library_.enter();
  guarded("pooled convolution backward", [&] {
    pooled_.backward(spec, rows_in_use(state, {x, dy, dx}), of(x), of(dy), of(w), of(dx), of(dw),
                     of(db), memory, accumulate);
  });
}

template <class T>
void CpuOps<T>::batch_norm_sums(const StepState* state, const BatchNormSpec& spec, Tensor x,
                                double* sums) {
  check_batch(x, kType, spec.columns(), "batch norm: x");
  cpu::batch_norm_sums<T>(library_, spec, rows_in_use(state, {x}), of(x), sums);
}

template <class T>
void CpuOps<T>::batch_norm_forward(const StepState* state, const BatchNormSpec& spec,
                                   const BatchNormForward& call) {
  check_call(spec, kType, call);
  cpu::batch_norm_forward<T>(library_, spec, rows_in_use(state, {call.x, call.other, call.y}),
                             call);
}

template <class T>
void CpuOps<T>::batch_norm_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                         const BatchNormBackward& call, Tensor dscale,
                                         Tensor dshift, bool accumulate, double* sums) {
  check_call(spec, kType, call);
  check_parameter(dscale, kType, spec.channels, "batch norm: dscale");
  check_parameter(dshift, kType, spec.channels, "batch norm: dshift");
  cpu::batch_norm_gradient_sums<T>(library_, spec, rows_in_use(state, {call.x, call.dy}), call,
                                   dscale, dshift, accumulate, sums);
}

template <class T>
void CpuOps<T>::batch_norm_backward(const StepState* state, const BatchNormSpec& spec,
                                    const BatchNormBackward& call) {
  check_call(spec, kType, call);
  cpu::batch_norm_backward<T>(library_, spec,
                              rows_in_use(state, {call.x, call.dy, call.dx, call.dother}), call);
}

template <class T>
void CpuOps<T>::relu(const StepState* state, Tensor x, Tensor y) {
  cpu::relu(of(x), of(y), elements_in_use(kType, state, {x, y}));
}

template <class T>
void CpuOps<T>::relu_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) {
  mask(of(y), of(dy), of(dx), elements_in_use(kType, state, {y, dy, dx}));
}

template <class T>
void CpuOps<T>::tanh(const StepState* state, Tensor x, Tensor y) {
  cpu::tanh(of(x), of(y), elements_in_use(kType, state, {x, y}));
}

template <class T>
void CpuOps<T>::tanh_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) {
  cpu::tanh_gradient(of(y), of(dy), of(dx), elements_in_use(kType, state, {y, dy, dx}));
}

template <class T>
void CpuOps<T>::add(const StepState* state, Tensor a, Tensor b, Tensor y) {
  cpu::add(of(a), of(b), of(y), elements_in_use(kType, state, {a, b, y}));
}

template <class T>
void CpuOps<T>::dropout(const StepState* state, const DropoutSpec& spec, Tensor x, Tensor y) {
  invariant(spec.rate >= 0 && spec.rate < 1, "a dropout rate outside [0, 1)");
  elements_in_use(kType, state, {x, y});
  const std::size_t rows = rows_in_use(state, {x, y}), columns = x.columns();
  const float kept = float(1 / (1 - spec.rate));
  for (std::size_t r = 0; r < rows; ++r) {
    const T* from = of(x) + r * columns;
    T* to = of(y) + r * columns;
    for (std::size_t j = 0; j < columns; j += 4) {
      const auto bits = dropout_bits(spec.key, state->ids[r], state->step, j / 4);
      for (std::size_t i = j; i < std::min(j + 4, columns); ++i) {
        to[i] = dropout_keeps(bits[i - j], spec.rate) ? T(from[i] * kept) : T(0.0f);
      }
    }
  }
}

template <class T>
void CpuOps<T>::embedding_forward(const StepState* state, const EmbeddingSpec& spec,
                                  const std::uint32_t* places, Tensor w, Tensor y) {
  const std::size_t rows = rows_in_use(state, {y});
  check_batch(y, kType, spec.outputs(), "embedding: y");
  check_parameter(w, kType, w.elements(), "embedding: w");
  check_places(spec, rows, places, w);
  cpu::embedding_forward(library_.threads(), spec, rows, places, of(w), of(y));
}

template <class T>
void CpuOps<T>::embedding_backward(const StepState* state, const EmbeddingSpec& spec,
                                   const std::uint32_t* places, Tensor dy, Tensor dw,
                                   bool accumulate) {
  if (!dw) return;
  const std::size_t rows = rows_in_use(state, {dy});
  check_batch(dy, kType, spec.outputs(), "embedding: dy");
  check_parameter(dw, kType, dw.elements(), "embedding: dw");
  const std::size_t table = check_places(spec, rows, places, dw);
  cpu::embedding_backward(library_, spec, rows, places, of(dy), table, of(dw), accumulate);
}

template <class T>
void CpuOps<T>::softmax_cross_entropy(const StepState* state, double smoothing, Tensor logits,
                                      Tensor target, Tensor dlogits, Tensor losses,
                                      Tensor correct) {
  const std::size_t rows = rows_in_use(state, {logits, target, dlogits, losses, correct});
  const std::size_t classes = logits.columns();
  check_batch(logits, kType, classes, "cross entropy: logits");
  check_batch(dlogits, kType, classes, "cross entropy: dlogits");
  check_batch(target, DType::kFloat32, 1, "cross entropy: target");
  check_batch(losses, DType::kFloat64, 1, "cross entropy: losses");
  check_batch(correct, DType::kFloat64, 1, "cross entropy: correct");
  float* const memory = wide(2 * rows * classes);
  const Widened numbers(of(logits), memory, 0), gradients(of(dlogits), memory, rows * classes);
  cpu::softmax_cross_entropy(rows, classes, smoothing, numbers.load(rows * classes),
                             target.as<float>(), state->ids,
                             state->inverse_examples * state->loss_scale, gradients.data(),
                             losses.as<double>(), correct.as<double>());
  gradients.store(rows * classes);
}

template <class T>
void CpuOps<T>::squared_error(const StepState* state, Tensor y, Tensor target, Tensor dy,
                              Tensor losses) {
  const std::size_t rows = rows_in_use(state, {y, target, dy, losses});
  const std::size_t columns = y.columns();
  check_batch(y, kType, columns, "squared error: y");
  check_batch(dy, kType, columns, "squared error: dy");
  check_batch(target, DType::kFloat32, columns, "squared error: target");
  check_batch(losses, DType::kFloat64, 1, "squared error: losses");
  float* const memory = wide(2 * rows * columns);
  const Widened numbers(of(y), memory, 0), gradients(of(dy), memory, rows * columns);
  cpu::squared_error(rows, columns, numbers.load(rows * columns), target.as<float>(),
                     state->inverse_examples * state->loss_scale, gradients.data(),
                     losses.as<double>());
  gradients.store(rows * columns);
}

template <class T>
void CpuOps<T>::softmax(const StepState* state, Tensor logits, Tensor probabilities) {
  const std::size_t count = elements_in_use(kType, state, {logits, probabilities});
  float* const memory = wide(2 * count);
  const Widened numbers(of(logits), memory, 0), results(of(probabilities), memory, count);
  cpu::softmax(rows_in_use(state, {logits, probabilities}), logits.columns(), numbers.load(count),
               results.data());
  results.store(count);
}

template <class T>
double CpuOps<T>::batch_sum(const StepState* state, Tensor rows) {
  check_batch(rows, DType::kFloat64, 1, "batch sum: rows");
  return balanced_sum(rows.as<double>(), rows_in_use(state, {rows}));
}

template <class T>
void CpuOps<T>::load(const float* from, Tensor x) {
  check_parameter(x, kType, x.elements(), "load: x");
  if constexpr (std::is_same_v<T, BFloat16>) {
    narrow(from, of(x), x.elements());
  } else {
    std::copy_n(from, x.elements(), of(x));
  }
}

template <class T>
std::uint64_t CpuOps<T>::checksum(const std::byte* data, std::size_t bytes,
                                  std::size_t offset) const {
  return cpu::checksum(data, bytes, offset);
}

template <class T>
void CpuOps<T>::reduce(const ReduceArguments& arguments) const {
  cpu::reduce(arguments);
}

template class CpuOps<float>;
template class CpuOps<BFloat16>;

}  // namespace lockstep::engine::cpu
