// SPDX-License-Identifier: MIT
// Elementwise kernels, embeddings, losses, and the sum of a batch. Checks of IDs and classes are
// deferred to the next wait.
#include <algorithm>
#include <initializer_list>

#include "engine/base/error.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/kernels/embedding.h"
#include "engine/cuda/kernels/losses.h"
#include "engine/cuda/kernels/pointwise.h"
#include "engine/cuda/kernels/rows.h"
#include "engine/cuda/kernels/sums.h"
#include "engine/ops/checks.h"

namespace lockstep::engine::cuda {
namespace {

constexpr unsigned kBlockThreads = 256;
constexpr std::size_t kMostBlocks = std::size_t(1) << 20;  // kernels loop over the rest

// Returns the common columns of batches that must be alike. Checks that they hold the rows in use.
std::size_t columns_of(DType dtype, const StepState& published,
                       std::initializer_list<Tensor> batches) {
  rows_in_use(&published, batches);
  const std::size_t columns = batches.begin()->columns();
  for (const Tensor& batch : batches) check_batch(batch, dtype, columns, "operands of two shapes");
  return columns;
}

// Returns a grid with one warp per row.
Grid warps_for(std::size_t rows) {
  constexpr std::size_t kRows = kBlockThreads / 32;
  const std::size_t blocks = (rows + kRows - 1) / kRows;
  return {.blocks = unsigned(std::clamp<std::size_t>(blocks, 1, kMostBlocks)),
          .threads = kBlockThreads};
}

}  // namespace

void CudaOps::relu(const StepState* state, Tensor x, Tensor y) {
  const std::size_t columns = columns_of(dtype_, published_, {x, y});
  launch(grid_for(x.elements()), ReluForward{state, x.data, y.data, columns});
}

void CudaOps::relu_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) {
  const std::size_t columns = columns_of(dtype_, published_, {y, dy, dx});
  launch(grid_for(y.elements()), ReluGradient{state, y.data, dy.data, dx.data, columns});
}

void CudaOps::tanh(const StepState* state, Tensor x, Tensor y) {
  const std::size_t columns = columns_of(dtype_, published_, {x, y});
  launch(grid_for(x.elements()), TanhForward{state, x.data, y.data, columns});
}

void CudaOps::tanh_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) {
  const std::size_t columns = columns_of(dtype_, published_, {y, dy, dx});
  launch(grid_for(y.elements()), TanhGradient{state, y.data, dy.data, dx.data, columns});
}

void CudaOps::add(const StepState* state, Tensor a, Tensor b, Tensor y) {
  const std::size_t columns = columns_of(dtype_, published_, {a, b, y});
  launch(grid_for(a.elements()), Add{state, a.data, b.data, y.data, columns});
}

void CudaOps::dropout(const StepState* state, const DropoutSpec& spec, Tensor x, Tensor y) {
  invariant(spec.rate >= 0 && spec.rate < 1, "a dropout rate outside [0, 1)");
  const std::size_t columns = columns_of(dtype_, published_, {x, y});
  launch(grid_for(x.elements()), Dropout{state, x.data, y.data, columns, spec.rate, spec.key});
}

void CudaOps::copy(const StepState* state, Tensor x, Tensor y) {
  const std::size_t columns = columns_of(x.dtype, published_, {x, y});
  launch(grid_for(x.elements()), CopyRows{state, x.data, y.data, columns * size_of(x.dtype)});
}

void CudaOps::copy_columns(const StepState* state, Tensor x, std::size_t from, Tensor y,
                           std::size_t to, std::size_t count) {
  if (rows_in_use(&published_, {x, y}) == 0) return;
  const std::size_t size = size_of(x.dtype);
  invariant(x.dtype == y.dtype && size % size_of(dtype_) == 0,
            "copy of columns: two element types, or a smaller one");
  invariant(from + count <= x.columns() && to + count <= y.columns(), "columns that are not there");
  launch(grid_for(x.rows() * count),
         CopyColumns{state, x.data, x.columns() * size, from * size, y.data, y.columns() * size,
                     to * size, count * size});
}

void CudaOps::clear(const StepState* state, Tensor y) {
  rows_in_use(&published_, {y});
  launch(grid_for(y.elements()), ClearRows{state, y.data, y.columns() * size_of(y.dtype)});
}

void CudaOps::embedding_rows(const StepState* state, const RowSource& source, Tensor x,
                             std::string_view layer, std::uint32_t* places) {
  if (rows_in_use(&published_, {x}) == 0) return;
  invariant(x.dtype == dtype_, "ids of another element type");
  check_ids(source, x, layer);
  launch(grid_for(x.rows() * source.fields),
         EmbeddingRows{state, x.data, x.columns(), source.first, source.fields, source.rows, places,
                       reinterpret_cast<Problem*>(questions_.problem.data())});
  ask({.numbers = x, .source = source, .layer = std::string(layer)});
}

void CudaOps::embedding_forward(const StepState* state, const EmbeddingSpec& spec,
                                const std::uint32_t* places, Tensor w, Tensor y) {
  rows_in_use(&published_, {y});
  check_batch(y, dtype_, spec.outputs(), "embedding: y");
  check_parameter(w, dtype_, w.elements(), "embedding: w");
  launch(grid_for(y.elements()),
         EmbeddingForward{state, places, w.data, y.data, spec.fields, spec.columns, spec.sum});
}

void CudaOps::embedding_backward(const StepState* state, const EmbeddingSpec& spec,
                                 const std::uint32_t* places, Tensor dy, Tensor dw,
                                 bool accumulate) {
  if (!dw) return;
  rows_in_use(&published_, {dy});
  check_batch(dy, dtype_, spec.outputs(), "embedding: dy");
  check_parameter(dw, dtype_, dw.elements(), "embedding: dw");
  if (!accumulate) stream_.fill(dw.data, 0, dw.bytes());
  constexpr std::size_t kMostTiles = 65535, kWarp = 32;
  const std::size_t threads =
      std::min<std::size_t>(kBlockThreads, (spec.columns + kWarp - 1) / kWarp * kWarp);
  const std::size_t picks = dy.rows() * spec.fields, tiles = (spec.columns + threads - 1) / threads;
  launch({.blocks = unsigned(std::min(picks, kMostBlocks)),
          .rows = unsigned(std::min(tiles, kMostTiles)),
          .threads = unsigned(threads)},
         EmbeddingBackward{state, places, dy.data, dw.data, spec.fields, spec.columns, spec.sum,
                           accumulate});
}

void CudaOps::softmax_cross_entropy(const StepState* state, double smoothing, Tensor logits,
                                    Tensor target, Tensor dlogits, Tensor losses, Tensor correct) {
  const std::size_t classes = columns_of(dtype_, published_, {logits, dlogits});
  rows_in_use(&published_, {target, losses, correct});
  check_batch(target, DType::kFloat32, 1, "cross entropy: target");
  check_batch(losses, DType::kFloat64, 1, "cross entropy: losses");
  check_batch(correct, DType::kFloat64, 1, "cross entropy: correct");
  launch(warps_for(logits.rows()),
         SoftmaxCrossEntropy{state, logits.data, target.as<float>(), dlogits.data,
                             losses.as<double>(), correct.as<double>(), classes, smoothing,
                             reinterpret_cast<Problem*>(questions_.problem.data())});
  ask({.numbers = target, .classes = classes});
}

void CudaOps::squared_error(const StepState* state, Tensor y, Tensor target, Tensor dy,
                            Tensor losses) {
  const std::size_t columns = columns_of(dtype_, published_, {y, dy});
  rows_in_use(&published_, {target, losses});
  check_batch(target, DType::kFloat32, columns, "squared error: target");
  check_batch(losses, DType::kFloat64, 1, "squared error: losses");
  launch(warps_for(y.rows()),
         SquaredError{state, y.data, target.as<float>(), dy.data, losses.as<double>(), columns});
}

void CudaOps::softmax(const StepState* state, Tensor logits, Tensor probabilities) {
  const std::size_t classes = columns_of(dtype_, published_, {logits, probabilities});
  launch(warps_for(logits.rows()), Softmax{state, logits.data, probabilities.data, classes});
}

double CudaOps::batch_sum(const StepState* state, Tensor rows) {
  queue_batch_sum(state, rows, reinterpret_cast<double*>(answer_.data()));
  synchronize();
  return *reinterpret_cast<const double*>(answer_.data());
}

void CudaOps::queue_batch_sum(const StepState* state, Tensor rows, double* sum) {
  rows_in_use(&published_, {rows});
  check_batch(rows, DType::kFloat64, 1, "batch sum: rows");
  launch({.threads = BatchSum::kThreads}, BatchSum{state, {rows.as<double>(), nullptr}, sum});
}

void CudaOps::queue_batch_sums(const StepState* state, Tensor first, Tensor second, double* sums) {
  rows_in_use(&published_, {first, second});
  check_batch(first, DType::kFloat64, 1, "batch sum: rows");
  check_batch(second, DType::kFloat64, 1, "batch sum: rows");
  launch({.blocks = 2, .threads = BatchSum::kThreads},
         BatchSum{state, {first.as<double>(), second.as<double>()}, sums});
}

}  // namespace lockstep::engine::cuda
