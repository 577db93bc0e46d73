// SPDX-License-Identifier: MIT
// The device "cpu:0": all cores of this host, float32 and bfloat16. Which kernel computes what, own
// ones or oneDNN's: README.md. Any thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

std::unique_ptr<Device> cpu_device();

// The library's name for each primitive that these kernels have made so far, such as
// "convolution forward 8x8x3 ...: brgconv:avx512_core": tests see by it that no slow fallback is in
// use. Empty for another device's kernels. The replica's computing thread.
std::vector<std::string> implementations(const Ops& ops);
// Bytes that the kernels hold by now beside operands and workspaces; 0 for other devices.
std::size_t held_by(const Ops& ops);

}  // namespace lockstep::engine
