// SPDX-License-Identifier: MIT
// Defines the functions of engine/cuda/cuda_device.h on fake GPUs, with loops for NVIDIA's
// libraries. There is one GPU, or as many as LOCKSTEP_FAKE_GPUS says. Programs linked with this
// file find fake GPUs instead of real ones, because the linker takes the first definition of a
// function. Otherwise they are unchanged.
#include "engine/cuda/cuda_device.h"

#include <cstdlib>

#include "engine/cuda/gpu.h"
#include "engine/cuda/gpu_links.h"
#include "engine/cuda/gpu_list.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/engine/cuda/fake_libraries.h"

namespace lockstep::engine {
namespace {

// Returns the GPUs of the process, which all callers share.
const cuda::FakeGpu& fake_of_process() {
  const char* const count = std::getenv("LOCKSTEP_FAKE_GPUS");
  static const cuda::FakeGpu fake({.gpus = count == nullptr ? 1 : std::atoi(count),
                                   .memory = std::size_t(1) << 30,
                                   .kernels = cuda::kernels_with_libraries});
  return fake;
}

}  // namespace

std::vector<std::unique_ptr<Device>> cuda_devices(const CudaOptions& options) {
  return cuda::gpu_list(fake_of_process().driver(), cuda::fake_kernels(), options.memory_fraction,
                        options.memory_bytes);
}

std::optional<CudaMemory> cuda_memory(Device& device) {
  auto* const gpu = dynamic_cast<cuda::Gpu*>(&device);
  if (gpu == nullptr || !gpu->used()) return std::nullopt;
  return CudaMemory{gpu->memory().most_taken(), gpu->memory().limit()};
}

std::vector<std::string> cuda_findings() {
  return cuda::gpu_findings(fake_of_process().driver());
}

std::vector<LibraryFinding> cuda_libraries() {
  return {};
}

GpuTopology cuda_topology() {
  return cuda::gpu_links(fake_of_process().driver(), nullptr, "fake GPUs have no NVML");
}

}  // namespace lockstep::engine
