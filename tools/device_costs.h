// SPDX-License-Identifier: MIT
// What the replicas of one process on its devices cost each other.
#pragma once
#include <string>
#include <vector>

#include "collectives/job/calibration.h"
#include "collectives/topology/topology.h"
#include "engine/device/device.h"

namespace lockstep::tools {

// Which costs are taken: kAssumed measures nothing, kStored measures where no costs of these GPUs
// are stored, kFresh always measures.
enum class DeviceCosts { kAssumed, kStored, kFresh };

std::vector<std::string> names_of(const std::vector<engine::Device*>& devices);

// Returns whether the devices are GPUs. Throws Error(kInvalid) where some are and others are not.
bool are_gpus(const std::vector<engine::Device*>& devices);

// `found`: this process, as discover() found it with these devices, one entry a replica. Costs of
// processors stay as they are. Throws what calibrate_gpus throws.
collectives::Calibration device_costs(const std::vector<engine::Device*>& devices,
                                      const collectives::Topology& found, DeviceCosts which);

}  // namespace lockstep::tools
