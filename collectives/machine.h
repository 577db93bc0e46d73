// SPDX-License-Identifier: MIT
// This machine as this process may use it: containers and launchers give less than there is.
#pragma once
#include <cstddef>
#include <string>

namespace lockstep::collectives {

struct Machine {
  std::string hostname;
  std::string cpu;  // model name
  int cores = 1;    // that this process may use: affinity and the cgroup's quota
  int cores_of_machine = 1;
  int numa_nodes = 1;
  std::size_t memory_bytes = 0;  // that this process may use: the cgroup's limit
};
Machine machine();  // reads /proc, /sys, affinity; a millisecond

}  // namespace lockstep::collectives
