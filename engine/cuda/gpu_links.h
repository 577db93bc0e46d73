// SPDX-License-Identifier: MIT
// Determines how the GPUs of a driver are linked. It asks the driver about access, NVML about
// links, and the kernel about NUMA nodes. Thread-safe. Takes some milliseconds, or a tenth of a
// second if it starts NVML.
#pragma once
#include <filesystem>

#include "engine/cuda/driver.h"
#include "engine/cuda/nvml.h"
#include "engine/device/gpu_topology.h"

namespace lockstep::engine::cuda {

// Returns the links between all usable GPUs. `nvml`: null if there is none; `why_none` is then the
// note. `pci`: the folder with one folder per PCI device. Throws Error(kDevice) if the driver does
// not answer; failures of NVML become a note.
GpuTopology gpu_links(const Driver& driver, const Nvml* nvml, const std::string& why_none,
                      const std::filesystem::path& pci = "/sys/bus/pci/devices");

}  // namespace lockstep::engine::cuda
