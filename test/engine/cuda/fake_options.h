// SPDX-License-Identifier: MIT
// The properties and faults of a fake GPU.
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
  std::vector<int> visible = {};                // PCI places; empty: consecutive
  std::vector<std::pair<int, int>> apart = {};  // the first cannot reach the second
  bool sharing = true;                          // with other processes
  std::size_t memory = std::size_t(256) << 20;  // per GPU
  int driver_version = CUDA_VERSION;
  int capability = 90;
  std::uint64_t seed = 1;  // of the order of streams
  // Returns the kernels of the modules.
  std::function<std::span<const EmulatedKernel>(DType)> kernels = emulated_kernels;

  // Runs when the host waits for the last work that it has queued: the GPU then idles until it
  // queues more. Must be thread-safe.
  std::function<void()> on_starved = [] {};
  // Runs when the host launches a kernel or a graph, including captured kernels. Must be
  // thread-safe.
  std::function<void()> on_launch = [] {};

  CUresult load = CUDA_SUCCESS;         // the result of loading a module
  std::size_t refused_launch = kNever;  // number from 0; fails when queued
  // Likewise, among the captured launches.
  std::size_t refused_recorded = kNever;
  std::size_t failed_launch = kNever;  // fails when it runs; so do later calls
};

}  // namespace lockstep::engine::cuda
