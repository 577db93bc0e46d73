// SPDX-License-Identifier: MIT
#include "engine/runtime/devices.h"
#include "test/engine/ops/devices.h"

namespace lockstep::engine {

// GPUs with all bits of float32, since results are held against its tolerance, and the first kernel
// that the library names: the shapes are more than a thousand.
std::vector<std::unique_ptr<Device>> devices_under_test() {
  return all_devices({.tf32 = false, .plan_candidates = 1});
}

// cuBLASLt rounds a product before it adds a bias, and cuDNN a sum before it adds it to a gradient
// (seen on an H100, versions 13.1 and 9.19). What is rounded first may be twice as large as the
// result: its rounding counts for two.
int roundings_under_test(const Device& device) {
  return device.id().kind == "cuda" ? 3 : 1;
}

}  // namespace lockstep::engine
