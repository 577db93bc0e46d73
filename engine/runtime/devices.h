// SPDX-License-Identifier: MIT
// All devices of this machine; this file's source is the only place that knows every kind.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/device/device.h"
#include "engine/device/gpu_topology.h"
#include "engine/device/library_finding.h"

namespace lockstep::engine {

struct DeviceOptions {
  double memory_fraction = 0.95;  // of a GPU's memory that is free when it is first used
  std::size_t memory_bytes = 0;   // of a GPU at most, whatever the fraction allows; 0: what that is
  bool tf32 = true;               // of a GPU: products of float32 with 10 bits of mantissa
  // Of a GPU: kernels of cuDNN that are timed for each shape of a convolution. To build one takes
  // milliseconds, or half a second where the library compiles it.
  std::size_t plan_candidates = 8;
  // Of a GPU: the folder in which is kept what was found the fastest kernel; empty: nothing is
  // kept.
  std::filesystem::path plan_cache = {};
  Log log = Log();  // warnings about what is kept there
};

// The best for everybody first: cpu:0, then reference:0. Owned by the caller; outlives everything
// made by them. Costs nothing.
std::vector<std::unique_ptr<Device>> host_devices();

// These, and behind them the GPUs that can be used: cuda:0, cuda:1, ... in the driver's order,
// which CUDA_VISIBLE_DEVICES says. Opening the driver costs a tenth of a second or more.
std::vector<std::unique_ptr<Device>> all_devices(const DeviceOptions& options = {});

// Throws Error(kInvalid) with a list of what there is, and of GPUs with the reason why not.
Device& find(std::span<const std::unique_ptr<Device>> devices, const DeviceId& id);

// Why the device cannot be used, found by a small sum on it; empty where it computes that. Takes as
// long as opening its libraries.
std::string fault_of(Device& device);

// For people, of those with memory of their own that this process has used: how much at most, and
// of how much that it might have used, a line each.
std::vector<std::string> describe_memory(std::span<Device* const> devices);

// For people, a line each: the driver, then each GPU or that there is none; or only why there is no
// driver.
std::vector<std::string> describe_gpus();

// The libraries that GPUs compute with, found or missing, whether there is a driver or not; empty
// if kernels for GPUs were left out of this build. Opens them.
std::vector<LibraryFinding> gpu_libraries();

// How the GPUs that can be used are linked; empty where there are none.
GpuTopology gpu_topology();

}  // namespace lockstep::engine
