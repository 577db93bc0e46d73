// SPDX-License-Identifier: MIT
// Costs between the replicas of one process on GPUs, including several on one GPU.
// collectives/cost/gpu_probes.h measures them. They are stored in a file, like the costs between
// ranks on processors (calibration.h). A job with other GPUs, another driver, other links or
// another version of lockstep has another file.
#pragma once
#include <filesystem>
#include <vector>

#include "collectives/cost/gpu_probes.h"
#include "collectives/job/calibration.h"
#include "collectives/topology/topology.h"
#include "engine/device/device.h"
#include "engine/device/gpu_topology.h"

namespace lockstep::collectives {

struct GpuCalibration {
  std::vector<engine::Device*> devices = {};  // one entry per rank
  engine::GpuTopology gpus = {};              // links between them, if several
  std::filesystem::path cache = {};           // folder of the files; empty: no files
  bool fresh = false;                         // measures anew and stores, without reading
  GpuProbes probes = {};
};

// Returns the costs that were measured before, if the folder has all of them. Otherwise the
// topology is unchanged and `cached` is false. `topology`: of one process, from discover(). Takes
// next to no time.
Calibration stored_gpu_costs(const Topology& topology, const GpuCalibration& how);

// Returns the stored costs, or measures them if there are none. Nothing else may use the GPUs
// meanwhile. Throws Error(kInvalid), which names two GPUs that do not reach each other's memory,
// Error(kMemory), and Error(kDevice) if a link changes numbers.
Calibration calibrate_gpus(const Topology& topology, const GpuCalibration& how);

}  // namespace lockstep::collectives
