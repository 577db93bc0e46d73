// SPDX-License-Identifier: MIT
#include "engine/cuda/nvml.h"

#include <fmt/format.h>

#include "engine/cuda/library.h"

namespace lockstep::engine::cuda {

static_assert(sizeof(NvmlPciInfo) == 68, "as the library writes it");

Nvml load_nvml() {
  const Library library({.names = {"libnvidia-ml.so.1"},
                         .folders = {},
                         .help = "install the part of NVIDIA's driver that has nvidia-smi"});
  Nvml nvml;
  take(library, nvml.init, "nvmlInit_v2");
  take(library, nvml.shutdown, "nvmlShutdown");
  take(library, nvml.error_string, "nvmlErrorString");
  take(library, nvml.system_get_nvml_version, "nvmlSystemGetNVMLVersion");
  take(library, nvml.device_get_handle_by_pci_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  take(library, nvml.device_get_topology_common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  take(library, nvml.device_get_nvlink_state, "nvmlDeviceGetNvLinkState");
  take(library, nvml.device_get_nvlink_version, "nvmlDeviceGetNvLinkVersion");
  take(library, nvml.device_get_nvlink_remote_device_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  take(library, nvml.device_get_nvlink_remote_pci_info, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  return nvml;
}

std::string version_text(const Nvml& nvml) {
  NvmlResult result = nvml.init();
  std::array<char, 80> version{};
  if (result == 0) {
    result = nvml.system_get_nvml_version(version.data(), unsigned(version.size() - 1));
    nvml.shutdown();
  }
  return result == 0 ? fmt::format("NVML {}", version.data())
                     : fmt::format("NVML, which cannot be started: {}", nvml.error_string(result));
}

}  // namespace lockstep::engine::cuda
