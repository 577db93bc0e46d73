// SPDX-License-Identifier: MIT
// What the replicas of one process on GPUs cost each other, several on one GPU included: measured
// by collectives/cost/gpu_probes.h, and kept in a file as what ranks on processors cost each other
// (calibration.h). A job with other GPUs, another driver, other links or another version of
// lockstep has another file.
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
  std::vector<engine::Device*> devices = {};  // one entry a rank
  engine::GpuTopology gpus = {};              // how they are linked, where they are several
  std::filesystem::path cache = {};           // folder of the files; empty: none is read or written
  bool fresh = false;                         // do not read; what is measured is stored
  GpuProbes probes = {};
};

// `topology`: of one process, as discover() gave it. What was measured before, where the folder has
// it whole; else the topology is as it came, and `cached` is false. No time.
Calibration stored_gpu_costs(const Topology& topology, const GpuCalibration& how);

// The same, and measures where there are none. While nothing else uses the GPUs. Throws
// Error(kInvalid) naming two that do not reach each other's memory, Error(kMemory), and
// Error(kDevice) of a link that carries other numbers.
Calibration calibrate_gpus(const Topology& topology, const GpuCalibration& how);

}  // namespace lockstep::collectives
