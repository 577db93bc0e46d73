// SPDX-License-Identifier: MIT
// Which processes of a host use memory of each other's GPUs, and so are one host for the plan.
// Those of a machine do where each has its replicas on one GPU, and all can open what all others
// have there: it is tried, both ways, with memory of a GPU, an event, and memory of the host that
// GPUs reach. So it counts what the drivers really do, whichever GPUs a process sees.
#pragma once
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "engine/device/device.h"

namespace lockstep::strategies {

struct GpuSharing {
  std::vector<int> with = {};            // of each process, as collectives::joined takes it
  std::vector<std::string> places = {};  // of each process's GPU on the bus; empty: not known
  std::string refusal = {};  // why some machine's processes do not; empty: none has to be told
  bool any() const;          // whether some do
};

// Collective, for processes with all their replicas on GPUs: two exchanges. `devices`: of this
// process's replicas. All processes get the same. Takes 2 MiB of a GPU and a page of the host for
// the while, and some milliseconds a process of the machine. Throws what the bootstrap throws.
GpuSharing find_gpu_sharing(collectives::Bootstrap& bootstrap,
                            const std::vector<engine::Device*>& devices);

}  // namespace lockstep::strategies
