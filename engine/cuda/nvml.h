// SPDX-License-Identifier: MIT
// The functions of NVIDIA's management library that lockstep calls, found at run time; its header
// is not part of every toolkit, so what is needed of it stands here, as its ABI has it. A field is
// named as the library's function without its `nvml` and version. A table is plain data; any thread
// may call what it holds, between `init` and `shutdown`, which count.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace lockstep::engine::cuda {

struct NvmlDeviceHandle;  // the library's
using NvmlDevice = NvmlDeviceHandle*;
using NvmlResult = int;  // 0: success

// Of what is at the other end of a link. The library fills in strings too, before and behind.
struct NvmlPciInfo {
  std::array<char, 16> old_bus_id{};
  std::uint32_t domain = 0, bus = 0, device = 0;
  std::uint32_t device_id = 0, subsystem_id = 0;
  std::array<char, 32> bus_id{};
};

enum class NvmlLinkEnd : std::uint32_t { kGpu = 0, kProcessor = 1, kSwitch = 2 };

// Where the ways of two GPUs to the processor meet.
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
  // Of one link, counted from 0.
  NvmlResult (*device_get_nvlink_state)(NvmlDevice, unsigned, std::uint32_t*) = nullptr;
  NvmlResult (*device_get_nvlink_version)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlResult (*device_get_nvlink_remote_device_type)(NvmlDevice, unsigned, NvmlLinkEnd*) = nullptr;
  NvmlResult (*device_get_nvlink_remote_pci_info)(NvmlDevice, unsigned, NvmlPciInfo*) = nullptr;
};

// Opens libnvidia-ml.so.1, which comes with the driver. Throws Error(kUnavailable), in one line,
// also where a function is missing. Does not start it.
Nvml load_nvml();

// "NVML 13.580.65"; starts it for that. If it cannot be started, says so instead of the version.
std::string version_text(const Nvml& nvml);

}  // namespace lockstep::engine::cuda
