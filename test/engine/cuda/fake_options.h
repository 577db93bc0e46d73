// SPDX-License-Identifier: MIT
// What a fake GPU is like, and what goes wrong with it.
#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "engine/tensor/tensor.h"
#include "test/engine/cuda/emulated_kernels.h"

namespace lockstep::engine::cuda {

struct FakeGpuOptions {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  int gpus = 1;
  std::vector<int> visible = {};                // the place of each, where not as they are numbered
  std::vector<std::pair<int, int>> apart = {};  // GPUs of which the first cannot reach the second
  bool sharing = true;                          // with other processes
  std::size_t memory = std::size_t(256) << 20;  // bytes of each
  int driver_version = CUDA_VERSION;
  int capability = 90;
  std::uint64_t seed = 1;  // of the order in which streams run
  // The kernels of its modules.
  std::function<std::span<const EmulatedKernel>(DType)> kernels = emulated_kernels;

  // Called where the host asks for the end of the last work that it has queued: until it queues
  // more, the GPU has nothing to do. Any thread.
  std::function<void()> on_starved = [] {};
  // Called where the host launches a kernel or a graph, recorded kernels included. Any thread.
  std::function<void()> on_launch = [] {};

  CUresult load = CUDA_SUCCESS;         // what loading a module is answered with
  std::size_t refused_launch = kNever;  // this launch fails when it is queued; the first is 0
  // Likewise, of those that are recorded.
  std::size_t refused_recorded = kNever;
  std::size_t failed_launch = kNever;  // this one when it runs, and every call after that
};

}  // namespace lockstep::engine::cuda
