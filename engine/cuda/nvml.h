// SPDX-License-Identifier: MIT
// The functions of NVIDIA's management library that lockstep calls, loaded at run time. Not every
// toolkit has its header, so the required part of its ABI is declared here. A field has the name of
// the library's function without its `nvml` and version. A table is plain data. Call its functions
// from any thread, between `init` and `shutdown`, which are counted.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace lockstep::engine::cuda {

struct NvmlDeviceHandle;  // defined by the library
using NvmlDevice = NvmlDeviceHandle*;
using NvmlResult = int;  // 0: success

// The remote end of a link. The library also fills in the strings before and after the numbers.
struct NvmlPciInfo {
  std::array<char, 16> old_bus_id{};
  std::uint32_t domain = 0, bus = 0, device = 0;
  std::uint32_t device_id = 0, subsystem_id = 0;
  std::array<char, 32> bus_id{};
};

enum class NvmlLinkEnd : std::uint32_t { kGpu = 0, kProcessor = 1, kSwitch = 2 };

// Identifies the common ancestor of two GPUs in the PCIe topology.
enum class NvmlAncestor : std::uint32_t {
  kBoard = 0,
  kSwitch = 10,
  kSwitches = 20,
  kHostBridge = 30,
  kNode = 40,
  kSystem = 50,
};

struct Nvml {
  NvmlResult (*init)() = nullptr;
  NvmlResult (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlResult) = nullptr;
  NvmlResult (*system_get_nvml_version)(char*, unsigned) = nullptr;
  NvmlResult (*device_get_handle_by_pci_bus_id)(const char*, NvmlDevice*) = nullptr;
  NvmlResult (*device_get_topology_common_ancestor)(NvmlDevice, NvmlDevice,
                                                    NvmlAncestor*) = nullptr;
  // These functions take a link, counted from 0.
  NvmlResult (*device_get_nvlink_state)(NvmlDevice, unsigned, std::uint32_t*) = nullptr;
  NvmlResult (*device_get_nvlink_version)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlResult (*device_get_nvlink_remote_device_type)(NvmlDevice, unsigned, NvmlLinkEnd*) = nullptr;
  NvmlResult (*device_get_nvlink_remote_pci_info)(NvmlDevice, unsigned, NvmlPciInfo*) = nullptr;
};

// Opens libnvidia-ml.so.1, which comes with the driver, without initializing it. Throws
// Error(kUnavailable) with one line, also if a function is missing.
Nvml load_nvml();

// Initializes the library and returns "NVML 13.580.65", or the error if it cannot be initialized.
std::string version_text(const Nvml& nvml);

}  // namespace lockstep::engine::cuda
