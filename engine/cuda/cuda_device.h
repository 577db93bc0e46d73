// SPDX-License-Identifier: MIT
// The GPUs "cuda:0", "cuda:1", ... of this machine, of NVIDIA. All that the rest of lockstep sees
// of CUDA; there in every build, also where lockstep was built without the toolkit. Any thread. The
// first call opens the driver: a tenth of a second, or more where no other process uses a GPU.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/device/device.h"
#include "engine/device/gpu_topology.h"
#include "engine/device/library_finding.h"

namespace lockstep::engine {

struct CudaOptions {
  double memory_fraction = 0.95;  // of each GPU's memory that is free when it is first used
  std::size_t memory_bytes = 0;   // of each, at most, whatever the fraction allows; 0: what that is
  bool tf32 = true;  // products of float32 by tensor cores, with 10 bits of mantissa: much faster
  // Kernels of cuDNN that are timed for each shape of a convolution. To build one takes
  // milliseconds, or half a second where the library compiles it.
  std::size_t plan_candidates = 8;
  // The folder in which is kept what was found the fastest kernel; empty: nothing is kept, and each
  // run finds its own, with other last bits.
  std::filesystem::path plan_cache = {};
  Log log = Log();  // warnings about what is kept there
};

// Empty where there is no driver, no GPU that can be used, or no toolkit when this was built. Owned
// by the caller; outlive everything made by them.
std::vector<std::unique_ptr<Device>> cuda_devices(const CudaOptions& options);

// Of these: how much of a GPU's memory this process has used at most, and might have used, in
// bytes. None where it has used none, and of other devices.
struct CudaMemory {
  std::size_t most_used = 0, limit = 0;
};
std::optional<CudaMemory> cuda_memory(Device& device);

// For `lockstep doctor`, each one line: the driver, then each GPU; or only why there is no driver.
std::vector<std::string> cuda_findings();

// The libraries beside the driver, whether there is a driver or not; empty if this was built
// without kernels for GPUs. Reads files of hundreds of megabytes.
std::vector<LibraryFinding> cuda_libraries();

// How the GPUs that can be used are linked; empty where there are none. What could not be asked is
// said in its note. Where there are several NVML is started, which takes a tenth of a second.
GpuTopology cuda_topology();

}  // namespace lockstep::engine
