// SPDX-License-Identifier: MIT
// For builds without the CUDA toolkit.
#include "engine/cuda/cuda_device.h"

namespace lockstep::engine {

std::vector<std::unique_ptr<Device>> cuda_devices(const CudaOptions&) {
  return {};
}

std::optional<CudaMemory> cuda_memory(Device&) {
  return std::nullopt;
}

std::vector<std::string> cuda_findings() {
  return {"built without CUDA: install the CUDA toolkit and configure again with -Dcuda=enabled"};
}

GpuTopology cuda_topology() {
  return {};
}

}  // namespace lockstep::engine
