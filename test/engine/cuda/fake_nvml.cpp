// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_nvml.h"

#include <cstdint>
#include <cstdio>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

// The library's functions have no argument for the fake.
FakeNvml* installed_nvml = nullptr;

constexpr NvmlResult kInvalid = 2, kNotFound = 6;

}  // namespace

FakeNvml::FakeNvml(std::vector<Gpu> gpus, NvmlResult start)
    : gpus_(std::move(gpus)), start_(start) {
  invariant(installed_nvml == nullptr, "one fake of NVML at a time");
  installed_nvml = this;
}

FakeNvml::~FakeNvml() {
  installed_nvml = nullptr;
}

const FakeNvml::Gpu& FakeNvml::gpu_of(NvmlDevice handle) {
  return *reinterpret_cast<const Gpu*>(handle);
}

const FakeNvml::Link* FakeNvml::link_of(NvmlDevice handle, unsigned link) {
  const std::vector<Link>& links = gpu_of(handle).links;
  return installed_nvml->starts_ > 0 && link < links.size() ? &links[link] : nullptr;
}

Nvml FakeNvml::table() const {
  Nvml nvml;
  nvml.init = [] {
    if (installed_nvml->start_ == 0) ++installed_nvml->starts_;
    return installed_nvml->start_;
  };
  nvml.shutdown = [] { return --installed_nvml->starts_, 0; };
  nvml.error_string = [](NvmlResult result) {
    return result == kNotFound ? "Not Found" : "Unknown Error";
  };
  nvml.system_get_nvml_version = [](char* version, unsigned size) {
    if (installed_nvml->starts_ == 0) return kInvalid;
    return std::snprintf(version, size, "13.580.65") < int(size) ? 0 : kInvalid;
  };
  nvml.device_get_handle_by_pci_bus_id = [](const char* bus_id, NvmlDevice* device) {
    unsigned domain = 0, bus = 0;
    if (installed_nvml->starts_ == 0 || std::sscanf(bus_id, "%x:%x", &domain, &bus) != 2)
      return kInvalid;
    if (bus >= installed_nvml->gpus_.size() || !installed_nvml->gpus_[bus].known) return kNotFound;
    *device = reinterpret_cast<NvmlDevice>(&installed_nvml->gpus_[bus]);
    return 0;
  };
  nvml.device_get_topology_common_ancestor = [](NvmlDevice a, NvmlDevice b, NvmlAncestor* level) {
    if (installed_nvml->starts_ == 0) return kInvalid;
    const Gpu &one = gpu_of(a), &other = gpu_of(b);
    *level = one.node != other.node                 ? NvmlAncestor::kSystem
             : one.bridge != other.bridge           ? NvmlAncestor::kNode
             : one.pcie_switch != other.pcie_switch ? NvmlAncestor::kHostBridge
                                                    : NvmlAncestor::kSwitch;
    return 0;
  };
  nvml.device_get_nvlink_state = [](NvmlDevice gpu, unsigned link, std::uint32_t* active) {
    const Link* const found = link_of(gpu, link);
    if (found == nullptr) return kInvalid;
    *active = found->active ? 1 : 0;
    return 0;
  };
  nvml.device_get_nvlink_version = [](NvmlDevice gpu, unsigned link, unsigned* version) {
    const Link* const found = link_of(gpu, link);
    if (found == nullptr) return kInvalid;
    *version = found->version;
    return 0;
  };
  nvml.device_get_nvlink_remote_device_type = [](NvmlDevice gpu, unsigned link, NvmlLinkEnd* end) {
    const Link* const found = link_of(gpu, link);
    if (found == nullptr) return kInvalid;
    *end = found->end;
    return 0;
  };
  // A switch has an address of its own.
  nvml.device_get_nvlink_remote_pci_info = [](NvmlDevice gpu, unsigned link, NvmlPciInfo* at) {
    const Link* const found = link_of(gpu, link);
    if (found == nullptr) return kInvalid;
    at->bus = found->end == NvmlLinkEnd::kGpu ? std::uint32_t(found->to) : 0xc0;
    return 0;
  };
  return nvml;
}

}  // namespace lockstep::engine::cuda
