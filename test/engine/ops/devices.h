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

}  // namespace lockstep::engine
