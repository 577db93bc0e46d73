// SPDX-License-Identifier: MIT
// Costs of ranks on GPUs of one host. They are either measured (gpu_probes.h) or assumed by the
// specified bandwidths of the links, which suffices to compare algorithms. All functions are pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "collectives/cost/gpu_probes.h"
#include "collectives/topology/topology.h"
#include "engine/device/gpu_topology.h"

namespace lockstep::collectives {

// Returns the bytes/s of one NVLink link in each direction. For an unknown generation (0), these
// are those of the slowest one possible.
double nvlink_bandwidth(int generation);

// Returns assumed costs, or nothing if the ranks are on one GPU or one of their devices is not in
// `gpus`. `devices`: one entry per rank of the host, such as "cuda:1".
std::optional<HostCosts> gpu_costs(const engine::GpuTopology& gpus,
                                   const std::vector<std::string>& devices);

// Returns each GPU of `devices` once, in the order of the first occurrences.
std::vector<std::string> each_gpu(const std::vector<std::string>& devices);
// Returns measured costs, also for ranks on one GPU. `paces`: of each_gpu(devices). `gpus` tells
// which links are direct; an unknown one counts as a path that all GPUs share.
HostCosts gpu_costs(const engine::GpuTopology& gpus, const std::vector<std::string>& devices,
                    const GpuPaces& paces);

// Sets the assumed costs, if there are any, of the host of a job with one process.
void assume_gpu_costs(Topology& topology, const engine::GpuTopology& gpus);

}  // namespace lockstep::collectives
