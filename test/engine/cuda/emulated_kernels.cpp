// SPDX-License-Identifier: MIT
#include "test/engine/cuda/emulated_kernels.h"

#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/base/error.h"
#include "engine/cuda/kernels/all.h"
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
namespace {

template <class T, class Arguments>
EmulatedKernel kernel() {
  static_assert(std::is_trivially_copyable_v<Arguments>);
  return {Arguments::kName, sizeof(Arguments),
          [](const void* arguments) { run<T>(*static_cast<const Arguments*>(arguments)); }};
}

template <class T, class... Arguments>
std::vector<EmulatedKernel> kernels_of(std::type_identity<std::tuple<Arguments...>>) {
  return {kernel<T, Arguments>()...};
}

template <class T>
std::span<const EmulatedKernel> kernels() {
  static const auto all = kernels_of<T>(std::type_identity<Kernels>());
  return all;
}

}  // namespace

std::span<const EmulatedKernel> emulated_kernels(DType dtype) {
  if (dtype == DType::kFloat32) return kernels<float>();
  if (dtype == DType::kBFloat16) return kernels<BFloat16>();
  invariant(dtype == DType::kFloat16, "kernels of a type that has none");
  return kernels<Half>();
}

}  // namespace lockstep::engine::cuda
