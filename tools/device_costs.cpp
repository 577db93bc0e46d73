// SPDX-License-Identifier: MIT
#include "tools/device_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/cost/cost_cache.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/job/gpu_calibration.h"
#include "engine/base/error.h"
#include "engine/runtime/devices.h"

namespace lockstep::tools {

std::vector<std::string> names_of(const std::vector<engine::Device*>& devices) {
  std::vector<std::string> names;
  for (const engine::Device* device : devices) names.push_back(to_string(device->id()));
  return names;
}

bool are_gpus(const std::vector<engine::Device*>& devices) {
  const auto gpus = std::ranges::count_if(
      devices, [](const engine::Device* device) { return device->id().kind == "cuda"; });
  engine::require(gpus == 0 || gpus == std::ptrdiff_t(devices.size()),
                  "--devices {}: replicas on GPUs and on processors do not reach each other's "
                  "memory: give devices of one kind",
                  fmt::join(names_of(devices), ","));
  return gpus > 0;
}

collectives::Calibration device_costs(const std::vector<engine::Device*>& devices,
                                      const collectives::Topology& found, DeviceCosts which) {
  collectives::Calibration assumed;
  assumed.topology = found;
  if (!are_gpus(devices)) return assumed;
  collectives::GpuCalibration how;
  how.devices = devices;
  if (collectives::each_gpu(names_of(devices)).size() > 1) how.gpus = engine::gpu_topology();
  how.cache = collectives::cache_folder();
  how.fresh = which == DeviceCosts::kFresh;
  collectives::assume_gpu_costs(assumed.topology, how.gpus);
  return which == DeviceCosts::kAssumed ? assumed
                                        : collectives::calibrate_gpus(assumed.topology, how);
}

}  // namespace lockstep::tools
