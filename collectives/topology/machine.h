// SPDX-License-Identifier: MIT
// The computer as this process may use it: affinity, control groups and all. Plain values; any
// thread; reads some twenty small files of /proc and /sys.
#pragma once
#include <cstddef>
#include <string>

namespace lockstep::collectives {

struct Machine {
  std::string hostname;
  std::string cpu;         // "Intel(R) Xeon(R) ..."; empty where the kernel does not say
  int cores = 1;           // processors that may run this process, by affinity and quota
  double quota = 0;        // the control group's, in processors; 0: none
  std::size_t memory = 0;  // bytes: of the computer or the control group, whichever is less
  bool operator==(const Machine&) const = default;
};
Machine machine();

// Bytes that this process could take now without being killed for it or refused by a resource limit
// (ulimit -v, -d). `processes` that take memory at the same time share what is free.
std::size_t available_memory(std::size_t processes = 1);

// Bytes of the last cache before the memory, of the first processor that may run this process; 0
// where the kernel does not say.
std::size_t last_cache();

// Bytes that this process has now, as proportional set size: what k processes share counts 1/k in
// each.
std::size_t process_memory();

}  // namespace lockstep::collectives
