// SPDX-License-Identifier: MIT
#include "strategies/session/gpu_assignment.h"

#include "engine/base/error.h"

namespace lockstep::strategies {

std::vector<int> assigned_gpus(const GpuAssignment& assignment) {
  const auto& [gpus, number, among, asked] = assignment;
  engine::invariant(number >= 0 && number < among, "a process is one of its number");
  engine::require(
      gpus >= among, engine::Option::kDevice,
      "{} processes on this host are too many for one of its {} GPUs each: start at most "
      "{} here (mpirun --map-by ppr:{}:node), or name a device that they may share, such as cuda:0",
      among, gpus, gpus, gpus);
  const int first = number * gpus / among;
  const int share = (number + 1) * gpus / among - first;
  const int replicas = asked.value_or(share);
  std::vector<int> of;
  for (int i = 0; i < replicas; ++i)
    of.push_back(first + (replicas <= share ? i : i * share / replicas));
  return of;
}

}  // namespace lockstep::strategies
