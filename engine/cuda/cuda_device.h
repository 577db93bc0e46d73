// SPDX-License-Identifier: MIT
// The NVIDIA GPUs "cuda:0", "cuda:1", ... of this machine. Besides nvtx.h, the rest of lockstep
// uses only this header of the CUDA backend. It exists in every build, with or without the toolkit.
// Thread-safe. The first call opens the driver, which takes a tenth of a second, or more if no
// other process uses a GPU.
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
  double memory_fraction = 0.95;  // of each GPU's free memory at first use
  std::size_t memory_bytes = 0;   // additional limit per GPU; 0: none
  bool tf32 = true;               // TF32 tensor cores for float32 products
  // Number of cuDNN kernels that are timed for each shape of a convolution. Building one takes
  // milliseconds, or half a second if the library compiles it.
  std::size_t plan_candidates = 8;
  // Folder that caches the fastest kernels. If empty, nothing is cached, and each run chooses its
  // own kernels, whose results may differ in the last bits.
  std::filesystem::path plan_cache = {};
  Log log = Log();  // for warnings about the cache
};

// Returns the GPUs; empty if there is no driver, no usable GPU, or no toolkit at build time. The
// caller owns them. They must outlive everything that was made with them.
std::vector<std::unique_ptr<Device>> cuda_devices(const CudaOptions& options);

// GPU memory of this process in bytes: the most it has used, and the most it may use. `cuda_memory`
// returns none for a GPU that was not used and for devices that are not GPUs.
struct CudaMemory {
  std::size_t most_used = 0, limit = 0;
};
std::optional<CudaMemory> cuda_memory(Device& device);

// Returns the lines of `lockstep doctor`: the driver, then one line per GPU, or only why there is
// no driver.
std::vector<std::string> cuda_findings();

// Returns the libraries besides the driver, even if there is no driver; empty in builds without GPU
// kernels. Reads files of hundreds of megabytes.
std::vector<LibraryFinding> cuda_libraries();

// Returns how the usable GPUs are linked; empty if there are none. The note names what could not be
// queried. If there are several GPUs, it starts NVML, which takes a tenth of a second.
GpuTopology cuda_topology();

}  // namespace lockstep::engine
