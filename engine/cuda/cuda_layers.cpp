// SPDX-License-Identifier: MIT
// Batch normalization and pooling.
#include "engine/base/error.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/kernels/batch_norm.h"
#include "engine/cuda/kernels/pool.h"
#include "engine/ops/checks.h"

namespace lockstep::engine::cuda {
namespace {

Grid channels_grid(std::size_t channels) {
  return {.blocks = unsigned((channels + kLineThreads - 1) / kLineThreads),
          .threads = kLineThreads};
}

// Returns the groups per tile. Large batches use full cache lines, which load faster. Small batches
// use half lines, which need fewer chunks.
unsigned tile_for(Tensor x, std::size_t channels) {
  constexpr std::size_t kLarge = std::size_t(1) << 26;  // elements
  return x.elements() >= kLarge && channels % (8 * kWideSumGroups) == 0 ? kWideSumGroups
                                                                        : kSumGroups;
}

const std::uint8_t* mask_of(const BatchNormSpec& s, const BatchNormBackward& call) {
  return s.activation == Activation::kRelu ? call.mask : nullptr;
}

BatchNormGradientSums gradient_sums(const StepState* state, const BatchNormSpec& s,
                                    const BatchNormBackward& call, const Partials& room,
                                    const BatchNormGradients& results, bool accumulate) {
  return {state,        s.positions,         s.channels,          call.x.data,
          call.dy.data, call.moments,        mask_of(s, call),    room,
          results.sums, results.dscale.data, results.dshift.data, accumulate};
}

BatchNormBackpropagate backpropagate(const StepState* state, const BatchNormSpec& s,
                                     const BatchNormBackward& call) {
  return {state,        s.positions,      s.channels, call.x.data, call.dy.data, call.scale.data,
          call.moments, mask_of(s, call), call.sums,  call.count,  call.dx.data, call.dother.data};
}

PoolSizes sizes_of(const PoolSpec& spec) {
  return {.largest = spec.kind == PoolKind::kMax,
          .height = unsigned(spec.height),
          .width = unsigned(spec.width),
          .channels = unsigned(spec.channels),
          .output_height = unsigned(spec.output_height()),
          .output_width = unsigned(spec.output_width()),
          .kernel_height = unsigned(spec.kernel_height),
          .kernel_width = unsigned(spec.kernel_width),
          .stride = unsigned(spec.stride),
          .padding = unsigned(spec.padding),
          .relu = spec.relu};
}

// The second dimension of a grid is at most 65535.
Grid images_grid(std::size_t elements, std::size_t channels, std::size_t rows) {
  constexpr std::size_t kMost = 65535;
  return {.blocks = pool_blocks(elements, channels),
          .rows = unsigned(least(rows, kMost)),
          .threads = kPoolThreads};
}

}  // namespace

void CudaOps::batch_norm_sums(const StepState* state, const BatchNormSpec& s, Tensor x,
                              double* sums) {
  batch_norm_statistics(state, s, x, sums, {});
}

void CudaOps::batch_norm_statistics(const StepState* state, const BatchNormSpec& s, Tensor x,
                                    double* sums, const engine::BatchNormMoments& call) {
  check_batch(x, dtype_, s.columns(), "x of a batch norm");
  const std::size_t groups = line_groups(s.channels);
  const Partials room =
      partials(x.rows() * s.positions, s.channels, groups, 2, tile_for(x, s.channels));
  launch(sums_grid(groups, room),
         BatchNormSums{state, s.positions, s.channels, x.data, room, sums,
                       BatchNormFindMoments{s.channels, s.epsilon, sums, call.moments, call.count,
                                            call.averages, call.keep}});
}

void CudaOps::batch_norm_moments(const BatchNormSpec& s, const engine::BatchNormMoments& call) {
  launch(channels_grid(s.channels),
         BatchNormFindMoments{s.channels, s.epsilon, call.sums, call.moments, call.count,
                              call.averages, call.keep});
}

void CudaOps::batch_norm_fixed_moments(const BatchNormSpec& s, const double* averages,
                                       double* moments) {
  launch(channels_grid(s.channels),
         BatchNormFixedMoments{s.channels, s.epsilon, averages, moments});
}

void CudaOps::batch_norm_forward(const StepState* state, const BatchNormSpec& s,
                                 const BatchNormForward& call) {
  check_call(s, dtype_, call);
  const std::size_t lines = call.x.rows() * s.positions;
  const BatchNormApply one{
      state,           s.positions,
      s.channels,      call.x.data,
      call.other.data, call.scale.data,
      call.shift.data, call.moments,
      call.y.data,     s.activation == Activation::kRelu ? call.mask : nullptr};
  if (call.other_moments == nullptr) return launch(lines_grid(lines, s.channels), one);
  BatchNormPairApply both{one, one};
  both.second.x = call.other.data;
  both.second.scale = call.other_scale.data;
  both.second.shift = call.other_shift.data;
  both.second.moments = call.other_moments;
  launch(lines_grid(lines, s.channels, kPairResidents), both);
}

void CudaOps::batch_norm_gradient_sums(const StepState* state, const BatchNormSpec& s,
                                       const BatchNormBackward& call, Tensor dscale, Tensor dshift,
                                       bool accumulate, double* sums) {
  check_call(s, dtype_, call);
  check_parameter(dscale, dtype_, s.channels, "batch norm: dscale");
  check_parameter(dshift, dtype_, s.channels, "batch norm: dshift");
  const std::size_t groups = line_groups(s.channels);
  const Partials room =
      partials(call.x.rows() * s.positions, s.channels, groups, 2, tile_for(call.x, s.channels));
  launch(sums_grid(groups, room),
         gradient_sums(state, s, call, room, {sums, dscale, dshift}, accumulate));
}

void CudaOps::batch_norm_pair_gradient_sums(const StepState* state, const BatchNormSpec& s,
                                            const BatchNormPair& pair, bool accumulate,
                                            const std::array<BatchNormGradients, 2>& results) {
  for (std::size_t k = 0; k < 2; ++k) {
    check_call(s, dtype_, pair[k]);
    check_parameter(results[k].dscale, dtype_, s.channels, "batch norm: dscale");
    check_parameter(results[k].dshift, dtype_, s.channels, "batch norm: dshift");
  }
  const Tensor& x = pair[0].x;
  const std::size_t groups = line_groups(s.channels);
  const Partials room =
      partials(x.rows() * s.positions, s.channels, groups, 3, tile_for(x, s.channels));
  launch(sums_grid(groups, room),
         BatchNormPairGradientSums{gradient_sums(state, s, pair[0], room, results[0], accumulate),
                                   gradient_sums(state, s, pair[1], room, results[1], accumulate)});
}

void CudaOps::batch_norm_backward(const StepState* state, const BatchNormSpec& s,
                                  const BatchNormBackward& call) {
  check_call(s, dtype_, call);
  launch(lines_grid(call.x.rows() * s.positions, s.channels), backpropagate(state, s, call));
}

void CudaOps::batch_norm_pair_backward(const StepState* state, const BatchNormSpec& s,
                                       const BatchNormPair& pair) {
  for (const BatchNormBackward& call : pair) check_call(s, dtype_, call);
  if (!pair[0].dx && !pair[1].dx) return;
  launch(lines_grid(pair[0].x.rows() * s.positions, s.channels, kPairResidents),
         BatchNormPairBackpropagate{backpropagate(state, s, pair[0]),
                                    backpropagate(state, s, pair[1])});
}

std::size_t CudaOps::pool_workspace(const PoolSpec& spec, std::size_t rows) {
  check_spec(spec);
  if (spec.kind != PoolKind::kMax) return 0;
  const bool small = small_places(spec.kernel_height * spec.kernel_width);
  return rows * spec.outputs() * (small ? sizeof(PoolPlace) : sizeof(LargePoolPlace));
}

void CudaOps::pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                           std::byte* workspace) {
  check_spec(spec);
  check_batch(x, dtype_, spec.inputs(), "x of a pool");
  check_batch(y, dtype_, spec.outputs(), "y of a pool");
  const PoolForward call{state, sizes_of(spec), x.data, y.data, workspace};
  const Grid grid = images_grid(spec.outputs(), spec.channels, y.rows());
  if (!pools_by_two(call.sizes)) return launch(grid, call);
  check_aligned({x.data, y.data, workspace});
  if (spec.kernel_width == 2) return launch(grid, QuadPoolForward{call});
  launch(grid, NinePoolForward{call});
}

void CudaOps::pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy, Tensor dx,
                            const std::byte* workspace) {
  check_spec(spec);
  check_batch(dy, dtype_, spec.outputs(), "dy of a pool");
  check_batch(dx, dtype_, spec.inputs(), "dx of a pool");
  const PoolSizes sizes = sizes_of(spec);
  const bool by_two = pools_by_two(sizes);
  const std::size_t pairs = std::size_t(input_pairs(sizes.height, sizes.padding)) *
                            input_pairs(sizes.width, sizes.padding);
  const PoolBackward call{state, sizes, dy.data, dx.data, workspace};
  const Grid grid =
      images_grid(by_two ? pairs * spec.channels : spec.inputs(), spec.channels, dx.rows());
  if (!by_two) return launch(grid, call);
  check_aligned({dx.data, dy.data, workspace});
  if (spec.kernel_width == 2) return launch(grid, QuadPoolBackward{call});
  launch(grid, NinePoolBackward{call});
}

}  // namespace lockstep::engine::cuda
