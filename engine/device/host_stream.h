// SPDX-License-Identifier: MIT
// The stream of a device whose kernels finish before their call returns: always idle.
#pragma once
#include "engine/device/device.h"

namespace lockstep::engine {

class HostStream final : public Stream {
 public:
  void synchronize() override {}
};

}  // namespace lockstep::engine
