// SPDX-License-Identifier: MIT
// All devices of this machine; this file's source is the only place that knows every kind.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/device/device.h"

namespace lockstep::engine {

// The best first: cpu:0, then reference:0. Owned by the caller; outlives everything made by them.
std::vector<std::unique_ptr<Device>> all_devices();

// Throws Error(kInvalid) with a list of what there is.
Device& find(std::span<const std::unique_ptr<Device>> devices, const DeviceId& id);

}  // namespace lockstep::engine
