// SPDX-License-Identifier: MIT
// What the control groups of this process (containers, batch systems) leave it of processors and
// memory: versions 1 and 2 of Linux's interface. The tightest of a group and all above it counts.
// Any thread; reads some ten small files. Never fails: what cannot be read limits nothing.
#pragma once
#include <cstddef>
#include <filesystem>
#include <limits>

namespace lockstep::collectives {

struct CgroupLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  double cores = 0;               // processor time per time; 0: no limit
  std::size_t memory = kNone;     // bytes
  std::size_t available = kNone;  // bytes of it that are free or can be freed (file cache)
};

// The paths are parameters for tests.
CgroupLimits cgroup_limits(const std::filesystem::path& membership = "/proc/self/cgroup",
                           const std::filesystem::path& mount = "/sys/fs/cgroup");

}  // namespace lockstep::collectives
