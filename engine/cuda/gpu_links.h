// SPDX-License-Identifier: MIT
// Asks how the GPUs of a driver are linked: the driver about access, NVML about links, the kernel
// about NUMA nodes. Any thread; some milliseconds, or a tenth of a second where NVML is started.
#pragma once
#include <filesystem>

#include "engine/cuda/driver.h"
#include "engine/cuda/nvml.h"
#include "engine/device/gpu_topology.h"

namespace lockstep::engine::cuda {

// Of all GPUs that can be used. `nvml`: null where there is none, and then `why_none` is the note.
// `pci`: the folder with one for each PCI device. Throws Error(kDevice) where the driver does not
// answer; what NVML does not answer is a note.
GpuTopology gpu_links(const Driver& driver, const Nvml* nvml, const std::string& why_none,
                      const std::filesystem::path& pci = "/sys/bus/pci/devices");

}  // namespace lockstep::engine::cuda
