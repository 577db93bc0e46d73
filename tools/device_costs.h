// SPDX-License-Identifier: MIT
// Costs between the replicas of one process on its devices.
#pragma once
#include <string>
#include <vector>

#include "collectives/job/calibration.h"
#include "collectives/topology/topology.h"
#include "engine/device/device.h"

namespace lockstep::tools {

// Selects the costs: kAssumed measures nothing, kStored measures if no costs of these GPUs are
// stored, kFresh always measures.
enum class DeviceCosts { kAssumed, kStored, kFresh };

std::vector<std::string> names_of(const std::vector<engine::Device*>& devices);

// Returns whether the devices are GPUs. Throws Error(kInvalid) if only some of them are.
bool are_gpus(const std::vector<engine::Device*>& devices);

// Returns the costs between the devices. `found`: this process, as discover() found it with these
// devices, one entry per replica. Costs of processors stay unchanged. Throws the errors of
// calibrate_gpus.
collectives::Calibration device_costs(const std::vector<engine::Device*>& devices,
                                      const collectives::Topology& found, DeviceCosts which);

}  // namespace lockstep::tools
