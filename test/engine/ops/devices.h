// SPDX-License-Identifier: MIT
// The devices under test. Each test program defines the two functions.
#pragma once
#include <memory>
#include <vector>

#include "engine/device/device.h"

namespace lockstep::engine {

// Returns the devices of this machine, or fake ones.
std::vector<std::unique_ptr<Device>> devices_under_test();
// Returns how often the libraries of such a device round a 16-bit product.
int roundings_under_test(const Device& device);

}  // namespace lockstep::engine
