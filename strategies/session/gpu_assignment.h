// SPDX-License-Identifier: MIT
// Assignment of a host's GPUs to the replicas of a process if no device is named. Processes that
// see the same GPUs share them in order, as equally as possible. Processes that see other GPUs
// (launchers set CUDA_VISIBLE_DEVICES) use those exclusively. Thread-safe; costs nothing. Throws
// Error(kInvalid) with a remedy if there are more processes than GPUs.
#pragma once
#include <optional>
#include <vector>

namespace lockstep::strategies {

struct GpuAssignment {
  int gpus = 0;  // visible to the process; at least one
  // Index among the processes that share them, and their number.
  int number = 0, among = 1;
  // Number of replicas; default: one per GPU of the process's share.
  std::optional<int> replicas = {};
};

// Returns the GPU of each replica as an index of the visible ones. If replicas share a GPU, they
// have consecutive numbers.
std::vector<int> assigned_gpus(const GpuAssignment& assignment);

}  // namespace lockstep::strategies
