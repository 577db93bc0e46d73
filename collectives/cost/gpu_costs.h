// SPDX-License-Identifier: MIT
// What ranks on GPUs of a host cost each other: as they were measured to be (gpu_probes.h), or by
// what links of their kind are specified to carry, which is assumed, and good for comparing
// algorithms. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "collectives/cost/gpu_probes.h"
#include "collectives/topology/topology.h"
#include "engine/device/gpu_topology.h"

namespace lockstep::collectives {

// Bytes/s of one link of NVLink in each direction; of a generation that is not known, 0, those of
// the slowest that can be there.
double nvlink_bandwidth(int generation);

// `devices`: "cuda:1", of each rank of the host. None where ranks are on one GPU, or one of their
// devices is not in `gpus`.
std::optional<HostCosts> gpu_costs(const engine::GpuTopology& gpus,
                                   const std::vector<std::string>& devices);

// Each GPU of `devices` once, in the order in which they stand there first.
std::vector<std::string> each_gpu(const std::vector<std::string>& devices);
// The same as they were measured: `paces` of each_gpu(devices), of ranks on one GPU too. The
// topology tells which links are direct; what it lacks is taken for a way that all share.
HostCosts gpu_costs(const engine::GpuTopology& gpus, const std::vector<std::string>& devices,
                    const GpuPaces& paces);

// Takes what is assumed for the hosts of a job of one process, where there are such.
void assume_gpu_costs(Topology& topology, const engine::GpuTopology& gpus);

}  // namespace lockstep::collectives
