// SPDX-License-Identifier: MIT
// Processor and memory limits of this process's control groups (containers, batch systems), for
// versions 1 and 2 of Linux's interface. The tightest limit of a group and its ancestors counts.
// Reading takes some ten small files and is thread-safe. It never fails: a file that cannot be read
// sets no limit.
#pragma once
#include <cstddef>
#include <filesystem>
#include <limits>

namespace lockstep::collectives {

struct CgroupLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  double cores = 0;               // CPU time per wall time; 0: no limit
  std::size_t memory = kNone;     // bytes
  std::size_t available = kNone;  // bytes free or reclaimable (file cache)
};

// Reads the limits. The paths are parameters for tests.
CgroupLimits cgroup_limits(const std::filesystem::path& membership = "/proc/self/cgroup",
                           const std::filesystem::path& mount = "/sys/fs/cgroup");

}  // namespace lockstep::collectives
