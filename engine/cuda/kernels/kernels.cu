// SPDX-License-Identifier: MIT
// The kernels of one element type, under the names that their arguments tell.
#include <element.cuh>

#include "engine/cuda/kernels/batch_norm.cuh"
#include "engine/cuda/kernels/batch_norm_lines.cuh"
#include "engine/cuda/kernels/column_sums.cuh"
#include "engine/cuda/kernels/dropout.cuh"
#include "engine/cuda/kernels/embedding.cuh"
#include "engine/cuda/kernels/factors.cuh"
#include "engine/cuda/kernels/fold.cuh"
#include "engine/cuda/kernels/losses.cuh"
#include "engine/cuda/kernels/pointwise.cuh"
#include "engine/cuda/kernels/pool.cuh"
#include "engine/cuda/kernels/reduce.cuh"
#include "engine/cuda/kernels/reduce_any.cuh"
#include "engine/cuda/kernels/rows.cuh"
#include "engine/cuda/kernels/sums.cuh"
#include "engine/cuda/kernels/thin.cuh"

namespace lockstep::engine::cuda {

extern "C" __global__ void relu_forward(ReluForward a) {
  run<Element>(a);
}
extern "C" __global__ void relu_gradient(ReluGradient a) {
  run<Element>(a);
}
extern "C" __global__ void tanh_forward(TanhForward a) {
  run<Element>(a);
}
extern "C" __global__ void tanh_gradient(TanhGradient a) {
  run<Element>(a);
}
extern "C" __global__ void add(Add a) {
  run<Element>(a);
}
extern "C" __global__ void dropout(Dropout a) {
  run<Element>(a);
}
extern "C" __global__ void convert(Convert a) {
  run<Element>(a);
}
extern "C" __global__ void take_batch(TakeBatch a) {
  run<Element>(a);
}
extern "C" __global__ void copy_rows(CopyRows a) {
  run<Element>(a);
}
extern "C" __global__ void clear_rows(ClearRows a) {
  run<Element>(a);
}
extern "C" __global__ void clear_rest(ClearRest a) {
  run<Element>(a);
}
extern "C" __global__ void copy_columns(CopyColumns a) {
  run<Element>(a);
}
extern "C" __global__ void softmax_cross_entropy(SoftmaxCrossEntropy a) {
  run<Element>(a);
}
extern "C" __global__ void squared_error(SquaredError a) {
  run<Element>(a);
}
extern "C" __global__ void softmax(Softmax a) {
  run<Element>(a);
}
extern "C" __global__ void batch_sum(BatchSum a) {
  run<Element>(a);
}
extern "C" __global__ void checksum(Checksum a) {
  run<Element>(a);
}
extern "C" __global__ void checksums(Checksums a) {
  run<Element>(a);
}
extern "C" __global__ void embedding_rows(EmbeddingRows a) {
  run<Element>(a);
}
extern "C" __global__ void embedding_forward(EmbeddingForward a) {
  run<Element>(a);
}
extern "C" __global__ void embedding_backward(EmbeddingBackward a) {
  run<Element>(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    batch_norm_sums(BatchNormSums a) {
  run<Element>(a);
}
extern "C" __global__ void batch_norm_moments(BatchNormFindMoments a) {
  run<Element>(a);
}
extern "C" __global__ void batch_norm_fixed_moments(BatchNormFixedMoments a) {
  run<Element>(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kLineResidents)
    batch_norm_forward(BatchNormApply a) {
  run<Element>(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    batch_norm_gradient_sums(BatchNormGradientSums a) {
  run<Element>(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kLineResidents)
    batch_norm_backward(BatchNormBackpropagate a) {
  run<Element>(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    column_sums(ColumnSums a) {
  run<Element>(a);
}
extern "C" __global__ void mask_gradient(MaskGradient a) {
  run<Element>(a);
}
extern "C" __global__ void fold_images(FoldImages a) {
  run<Element>(a);
}
extern "C" __global__ void fold_weights(FoldWeights a) {
  run<Element>(a);
}
extern "C" __global__ void unfold_gradient(UnfoldGradient a) {
  run<Element>(a);
}
extern "C" __global__ void pool_forward(PoolForward a) {
  run<Element>(a);
}
extern "C" __global__ void pool_backward(PoolBackward a) {
  run<Element>(a);
}
extern "C" __global__ void thin_forward(ThinForward a) {
  run<Element>(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    thin_gradients(ThinGradients a) {
  run<Element>(a);
}
extern "C" __global__ void reduce_sum(ReduceSum a) {
  run<Element>(a);
}
extern "C" __global__ void reduce_squares(ReduceSquares a) {
  run<Element>(a);
}
extern "C" __global__ void reduce_update(ReduceUpdate a) {
  run<Element>(a);
}
extern "C" __global__ void reduce_any(ReduceAny a) {
  run<Element>(a);
}
extern "C" __global__ void find_factors(FindFactors a) {
  run<Element>(a);
}

}  // namespace lockstep::engine::cuda
