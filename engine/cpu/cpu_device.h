// SPDX-License-Identifier: MIT
// The device "cpu:0": all cores of this host, float32 and bfloat16. README.md says which kernels
// are own ones and which are oneDNN's. Thread-safe.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

std::unique_ptr<Device> cpu_device();

// Returns the library's name of each primitive that these kernels have made so far, such as
// "convolution forward 8x8x3 ...: brgconv:avx512_core". Tests use it to check that no slow fallback
// runs. Empty for other devices' kernels. Called on the replica's computing thread.
std::vector<std::string> implementations(const Ops& ops);
// Returns the bytes that the kernels hold besides operands and workspaces; 0 for other devices.
std::size_t held_by(const Ops& ops);

}  // namespace lockstep::engine
