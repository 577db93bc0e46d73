// SPDX-License-Identifier: MIT
// The kernels of one element type, named by their arguments.
#include <element.cuh>

#include "engine/cuda/kernels/batch_norm.cuh"
#include "engine/cuda/kernels/batch_norm_lines.cuh"
#include "engine/cuda/kernels/batch_norm_pair.cuh"
#include "engine/cuda/kernels/column_sums.cuh"
#include "engine/cuda/kernels/dropout.cuh"
#include "engine/cuda/kernels/embedding.cuh"
#include "engine/cuda/kernels/factors.cuh"
#include "engine/cuda/kernels/few_channel.cuh"
#include "engine/cuda/kernels/losses.cuh"
#include "engine/cuda/kernels/narrow.cuh"
#include "engine/cuda/kernels/narrow_group_gradient.cuh"
#include "engine/cuda/kernels/narrow_outputs.cuh"
#include "engine/cuda/kernels/pointwise.cuh"
#include "engine/cuda/kernels/pool.cuh"
#include "engine/cuda/kernels/reduce.cuh"
#include "engine/cuda/kernels/reduce_any.cuh"
#include "engine/cuda/kernels/rows.cuh"
#include "engine/cuda/kernels/space_to_depth.cuh"
#include "engine/cuda/kernels/sums.cuh"

namespace lockstep::engine::cuda {

// Runs a kernel. Every kernel begins here, because the GPU may start it early.
template <class Arguments>
__device__ __forceinline__ void start(const Arguments& a) {
  wait_for_earlier_kernels();
  run<Element>(a);
}

extern "C" __global__ void relu_forward(ReluForward a) {
  start(a);
}
extern "C" __global__ void relu_gradient(ReluGradient a) {
  start(a);
}
extern "C" __global__ void tanh_forward(TanhForward a) {
  start(a);
}
extern "C" __global__ void tanh_gradient(TanhGradient a) {
  start(a);
}
extern "C" __global__ void add(Add a) {
  start(a);
}
extern "C" __global__ void dropout(Dropout a) {
  start(a);
}
extern "C" __global__ void convert(Convert a) {
  start(a);
}
extern "C" __global__ void take_batch(TakeBatch a) {
  start(a);
}
extern "C" __global__ void copy_rows(CopyRows a) {
  start(a);
}
extern "C" __global__ void clear_rows(ClearRows a) {
  start(a);
}
extern "C" __global__ void clear_rest(ClearRest a) {
  start(a);
}
extern "C" __global__ void copy_columns(CopyColumns a) {
  start(a);
}
extern "C" __global__ void softmax_cross_entropy(SoftmaxCrossEntropy a) {
  start(a);
}
extern "C" __global__ void squared_error(SquaredError a) {
  start(a);
}
extern "C" __global__ void softmax(Softmax a) {
  start(a);
}
extern "C" __global__ void batch_sum(BatchSum a) {
  start(a);
}
extern "C" __global__ void checksum(Checksum a) {
  start(a);
}
extern "C" __global__ void checksums(Checksums a) {
  start(a);
}
extern "C" __global__ void embedding_rows(EmbeddingRows a) {
  start(a);
}
extern "C" __global__ void embedding_forward(EmbeddingForward a) {
  start(a);
}
extern "C" __global__ void embedding_backward(EmbeddingBackward a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    batch_norm_sums(BatchNormSums a) {
  start(a);
}
extern "C" __global__ void batch_norm_moments(BatchNormFindMoments a) {
  start(a);
}
extern "C" __global__ void batch_norm_fixed_moments(BatchNormFixedMoments a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kLineResidents)
    batch_norm_forward(BatchNormApply a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    batch_norm_gradient_sums(BatchNormGradientSums a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kLineResidents)
    batch_norm_backward(BatchNormBackpropagate a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kPairResidents)
    batch_norm_pair_forward(BatchNormPairApply a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    batch_norm_pair_gradient_sums(BatchNormPairGradientSums a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kPairResidents)
    batch_norm_pair_backward(BatchNormPairBackpropagate a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    column_sums(ColumnSums a) {
  start(a);
}
extern "C" __global__ void mask_gradient(MaskGradient a) {
  start(a);
}
extern "C" __global__ void space_to_depth_images(SpaceToDepthImages a) {
  start(a);
}
extern "C" __global__ void space_to_depth_weights(SpaceToDepthWeights a) {
  start(a);
}
extern "C" __global__ void depth_to_space_gradient(DepthToSpaceGradient a) {
  start(a);
}
extern "C" __global__ void pool_forward(PoolForward a) {
  start(a);
}
extern "C" __global__ void pool_backward(PoolBackward a) {
  start(a);
}
extern "C" __global__ void quad_pool_forward(QuadPoolForward a) {
  start(a);
}
extern "C" __global__ void quad_pool_backward(QuadPoolBackward a) {
  start(a);
}
// Blocks that a multiprocessor runs at a time. A thread holds a whole window.
constexpr unsigned kNineResidents = sizeof(Element) == 2 ? 4 : 2;
extern "C" __global__ void __launch_bounds__(kPoolThreads, kNineResidents)
    nine_pool_forward(NinePoolForward a) {
  start(a);
}
extern "C" __global__ void nine_pool_backward(NinePoolBackward a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kLineResidents)
    few_channel_forward(FewChannelForward a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kLineThreads, kSumResidents)
    few_channel_gradients(FewChannelGradients a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kMostNarrowThreads, 1)
    narrow_gradient(NarrowGradient a) {
  start(a);
}
extern "C" __global__ void narrow_gradient_end(NarrowGradientEnd a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kNarrowGroupThreads, 1)
    narrow_group_gradient(NarrowGroupGradient a) {
  start(a);
}
extern "C" __global__ void __launch_bounds__(kNarrowOutputThreads, 1)
    narrow_outputs(NarrowOutputs a) {
  start(a);
}
extern "C" __global__ void reduce_sum(ReduceSum a) {
  start(a);
}
extern "C" __global__ void reduce_squares(ReduceSquares a) {
  start(a);
}
extern "C" __global__ void reduce_update(ReduceUpdate a) {
  start(a);
}
extern "C" __global__ void reduce_any(ReduceAny a) {
  start(a);
}
extern "C" __global__ void find_factors(FindFactors a) {
  start(a);
}

}  // namespace lockstep::engine::cuda
