// SPDX-License-Identifier: MIT
// Processes of a host that use memory of each other's GPUs and therefore form one host in the plan.
// Processes of a machine share if each has all replicas on one GPU and all can open the others'
// memory. This is tested in both directions with GPU memory, an event, and host memory that GPUs
// access. So the result reflects the drivers' real behavior, whichever GPUs a process sees.
#pragma once
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "engine/device/device.h"

namespace lockstep::strategies {

struct GpuSharing {
  // Per process, as collectives::joined takes it.
  std::vector<int> with = {};
  // Bus address of each process's GPU; empty: unknown.
  std::vector<std::string> places = {};
  // Says why the processes of some machine do not share; empty: nothing to report.
  std::string refusal = {};
  bool any() const;  // some processes share
};

// Finds the sharing. Collective, for processes whose replicas are all on GPUs; needs two exchanges.
// `devices`: those of this process's replicas. All processes get the same result. Temporarily needs
// 2 MiB of a GPU and a page of the host; takes some milliseconds per process of the machine. Throws
// the bootstrap's errors.
GpuSharing find_gpu_sharing(collectives::Bootstrap& bootstrap,
                            const std::vector<engine::Device*>& devices);

}  // namespace lockstep::strategies
