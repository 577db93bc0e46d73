// SPDX-License-Identifier: MIT
// Which GPUs of its host the replicas of a process take where none are named: the processes that
// see the same GPUs share them in their order, as equally as can be. Those that see others (as
// launchers make it by CUDA_VISIBLE_DEVICES) have these for themselves. Any thread; costs nothing.
// Throws Error(kInvalid) where processes are more than GPUs, saying what would be right.
#pragma once
#include <optional>
#include <vector>

namespace lockstep::strategies {

struct GpuAssignment {
  int gpus = 0;               // that the process sees; at least one
  int number = 0, among = 1;  // of the processes that share them
  // So many replicas; none: one on each GPU of the process's share.
  std::optional<int> replicas = {};
};

// The GPU of each replica, as one of those seen. Of more replicas than GPUs those on one are
// neighbours.
std::vector<int> assigned_gpus(const GpuAssignment& assignment);

}  // namespace lockstep::strategies
