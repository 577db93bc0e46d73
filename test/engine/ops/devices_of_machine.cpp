// SPDX-License-Identifier: MIT
#include "engine/runtime/devices.h"
#include "test/engine/ops/devices.h"

namespace lockstep::engine {

// Returns all devices, with full float32 on GPUs because the results must be within its tolerance.
// GPUs use the first kernel that the library proposes: there are more than a thousand shapes.
std::vector<std::unique_ptr<Device>> devices_under_test() {
  return all_devices({.tf32 = false, .plan_candidates = 1});
}

// Returns 3 for GPUs. cuBLASLt rounds a product before it adds a bias, and cuDNN rounds a sum
// before it adds it to a gradient. (Observed on an H100, versions 13.1 and 9.19.) The value that is
// rounded first may be twice the result, so its rounding counts twice.
int roundings_under_test(const Device& device) {
  return device.id().kind == "cuda" ? 3 : 1;
}

}  // namespace lockstep::engine
