// SPDX-License-Identifier: MIT
#include "engine/runtime/devices.h"
#include "test/engine/ops/devices.h"

namespace lockstep::engine {

std::vector<std::unique_ptr<Device>> devices_under_test() {
  return all_devices();
}

}  // namespace lockstep::engine
