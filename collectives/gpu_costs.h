// SPDX-License-Identifier: MIT
// What ranks on several GPUs of a host cost each other, by what links of their kind are specified
// to carry: assumed, and good for comparing algorithms; nothing of it was measured. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "collectives/topology.h"
#include "engine/device/gpu_topology.h"

namespace lockstep::collectives {

// Bytes/s of one link of NVLink in each direction; of a generation that is not known, 0, those of
// the slowest that can be there.
double nvlink_bandwidth(int generation);

// `devices`: "cuda:1", of each rank of the host. None where ranks are on one GPU, or one of their
// devices is not in `gpus`.
std::optional<HostCosts> gpu_costs(const engine::GpuTopology& gpus,
                                   const std::vector<std::string>& devices);

// Takes these for the hosts of a job of one process, where there are such.
void assume_gpu_costs(Topology& topology, const engine::GpuTopology& gpus);

}  // namespace lockstep::collectives
