// SPDX-License-Identifier: MIT
// The GPUs of a driver that was started. Any thread; some milliseconds, and none of the GPUs'
// memory. GPUs that cannot be used are left out, and named with the reason in the findings.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/gpu.h"

namespace lockstep::engine::cuda {

// In the driver's order; cuda:1 keeps its name where cuda:0 is left out.
std::vector<std::unique_ptr<Device>> gpu_list(const Driver& driver, const GpuKernels& kernels,
                                              double memory_fraction, std::size_t memory_bytes = 0);

// One line about the driver, and one about each GPU, for people.
std::vector<std::string> gpu_findings(const Driver& driver);

}  // namespace lockstep::engine::cuda
