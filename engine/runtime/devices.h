// SPDX-License-Identifier: MIT
// All devices of this machine. Only this file's source knows every kind of device.
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
  // The part of each GPU's free memory, measured at its first use, that may be used.
  double memory_fraction = 0.95;
  std::size_t memory_bytes = 0;  // limit per GPU; 0: only the fraction
  bool tf32 = true;              // GPUs: float32 products with 10 mantissa bits
  // GPUs: cuDNN kernels that are timed for each shape of a convolution. Building one takes
  // milliseconds, or half a second if the library compiles it.
  std::size_t plan_candidates = 8;
  // GPUs: the folder that caches which kernels were fastest; empty: no cache.
  std::filesystem::path plan_cache = {};
  Log log = Log();  // receives warnings about the cache
};

// Returns cpu:0, then reference:0, the best for general use first. The caller owns them; they must
// outlive everything made by them. Costs nothing.
std::vector<std::unique_ptr<Device>> host_devices();

// Returns the host's devices, then the usable GPUs: cuda:0, cuda:1, ... in the driver's order,
// which follows CUDA_VISIBLE_DEVICES. Opening the driver takes a tenth of a second or more.
std::vector<std::unique_ptr<Device>> all_devices(const DeviceOptions& options = {});

// Returns the device with this id. Throws Error(kInvalid) with a list of the devices; for GPUs it
// says why there are none.
Device& find(std::span<const std::unique_ptr<Device>> devices, const DeviceId& id);

// Returns why the device cannot be used, or an empty string if it computes a small sum correctly.
// Takes as long as opening the device's libraries.
std::string fault_of(Device& device);

// Returns readable lines, one per device with memory of its own that this process has used: the
// most memory used, and the limit.
std::vector<std::string> describe_memory(std::span<Device* const> devices);

// Returns readable lines: the driver, then each GPU or a note that there is none. If there is no
// driver, it returns only the reason.
std::vector<std::string> describe_gpus();

// Returns the libraries that GPUs compute with, found or missing, whether or not there is a driver;
// empty if this build has no GPU kernels. Opens them.
std::vector<LibraryFinding> gpu_libraries();

// Returns how the usable GPUs are linked; empty if there are none.
GpuTopology gpu_topology();

}  // namespace lockstep::engine
