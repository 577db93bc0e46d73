// SPDX-License-Identifier: MIT
// Resources of the computer that this process may use, after affinity and control groups. They are
// plain values. The functions are thread-safe and read some twenty small files of /proc and /sys.
#pragma once
#include <cstddef>
#include <string>

namespace lockstep::collectives {

struct Machine {
  std::string hostname;
  std::string cpu;         // "Intel(R) Xeon(R) ..."; empty if unknown
  int cores = 1;           // processors for this process, by affinity and quota
  double quota = 0;        // cgroup quota in processors; 0: none
  std::size_t memory = 0;  // bytes; minimum of computer and control group
  bool operator==(const Machine&) const = default;
};
Machine machine();

// Returns the bytes that this process could allocate now without being killed or refused by a
// resource limit (ulimit -v, -d). `processes` that allocate at the same time share what is free.
std::size_t available_memory(std::size_t processes = 1);

// Returns the bytes of the last-level cache of the first allowed processor; 0 if unknown.
std::size_t last_cache();

// Returns the bytes that this process uses, as proportional set size: memory that k processes share
// counts 1/k in each.
std::size_t process_memory();

}  // namespace lockstep::collectives
