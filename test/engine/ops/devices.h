// SPDX-License-Identifier: MIT
// The devices that tests of kernels run on. Each program of tests says which are meant by the
// first.
#pragma once
#include <memory>
#include <vector>

#include "engine/device/device.h"

namespace lockstep::engine {

// Of this machine, or made for tests.
std::vector<std::unique_ptr<Device>> devices_under_test();
// Returns how often the libraries of such a device round a product of 16 bits.
int roundings_under_test(const Device& device);

}  // namespace lockstep::engine
