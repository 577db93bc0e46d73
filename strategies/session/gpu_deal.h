// SPDX-License-Identifier: MIT
// Which GPUs of its host the replicas of a process take where none are named: the processes of a
// host share them in the order of their local ranks, as equally as can be. Any thread; costs
// nothing. Throws Error(kInvalid) where processes are more than GPUs, saying what would be right.
#pragma once
#include <optional>
#include <vector>

namespace lockstep::strategies {

struct GpuDeal {
  int gpus = 0;  // that the process sees; at least one
  int local_rank = 0, local_size = 1;
  // So many replicas; none: one on each GPU of the process's share.
  std::optional<int> replicas = {};
  // The process sees GPUs that were chosen for it (CUDA_VISIBLE_DEVICES): a single one is then its
  // own, as launchers give one to each process.
  bool chosen = false;
};

// The GPU of each replica. Of more replicas than GPUs those on one are neighbours.
std::vector<int> deal_gpus(const GpuDeal& deal);

}  // namespace lockstep::strategies
