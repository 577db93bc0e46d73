// SPDX-License-Identifier: MIT
// The GPUs of an initialized driver. Thread-safe; takes some milliseconds and no GPU memory.
// Unusable GPUs are left out of the list; the findings name them with the reason.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/gpu.h"

namespace lockstep::engine::cuda {

// Returns the GPUs in the driver's order. cuda:1 keeps its name if cuda:0 is left out.
std::vector<std::unique_ptr<Device>> gpu_list(const Driver& driver, const GpuKernels& kernels,
                                              double memory_fraction, std::size_t memory_bytes = 0);

// Returns readable lines: one about the driver and one about each GPU.
std::vector<std::string> gpu_findings(const Driver& driver);

}  // namespace lockstep::engine::cuda
