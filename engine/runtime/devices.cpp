// SPDX-License-Identifier: MIT
#include "engine/runtime/devices.h"

#include <string>

#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "engine/reference/reference_device.h"

namespace lockstep::engine {

std::vector<std::unique_ptr<Device>> all_devices() {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(cpu_device());
  devices.push_back(reference_device());
  return devices;
}

Device& find(std::span<const std::unique_ptr<Device>> devices, const DeviceId& id) {
  std::string known;
  for (const std::unique_ptr<Device>& device : devices) {
    if (device->id() == id) return *device;
    known += (known.empty() ? "" : ", ") + to_string(device->id());
  }
  fail(Code::kInvalid, "there is no device {}; this machine has {}", to_string(id), known);
}

}  // namespace lockstep::engine
