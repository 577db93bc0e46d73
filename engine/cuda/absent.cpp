// SPDX-License-Identifier: MIT
// Stubs of cuda_device.h for builds without the CUDA toolkit.
#include "engine/cuda/cuda_device.h"

namespace lockstep::engine {

std::vector<std::unique_ptr<Device>> cuda_devices(const CudaOptions&) {
  return {};
}

std::optional<CudaMemory> cuda_memory(Device&) {
  return std::nullopt;
}

std::vector<std::string> cuda_findings() {
  return {
      "the kernels for GPUs were left out of this build: configure it with -Dcuda=enabled "
      "(needs the CUDA toolkit and the headers of cuDNN 9)"};
}

std::vector<LibraryFinding> cuda_libraries() {
  return {};
}

GpuTopology cuda_topology() {
  return {};
}

}  // namespace lockstep::engine
