// SPDX-License-Identifier: MIT
#include "collectives/topology/machine.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "collectives/topology/binding.h"
#include "collectives/topology/cgroup.h"

namespace lockstep::collectives {
namespace {

namespace fs = std::filesystem;

// Returns the value of a line "label   : value" or "label: 12 kB".
std::string field(const char* file, std::string_view label) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(label, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

std::size_t bytes_of(const char* file, std::string_view label) {
  const std::string text = field(file, label);
  std::size_t kilobytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), kilobytes);
  return kilobytes * 1024;
}

// Returns the bytes of the computer. Without /proc, a system call provides them.
std::size_t all_memory() {
  const std::size_t listed = bytes_of("/proc/meminfo", "MemTotal");
  struct sysinfo info {};
  if (listed > 0 || sysinfo(&info) != 0) return listed;
  return std::size_t(info.totalram) * info.mem_unit;
}

// Returns what a resource limit of this process leaves; `label` of /proc/self/status is in use.
std::size_t room_below(__rlimit_resource limit, std::string_view label) {
  rlimit bounds{};
  if (getrlimit(limit, &bounds) != 0 || bounds.rlim_cur == RLIM_INFINITY) return std::size_t(-1);
  const std::size_t most = bounds.rlim_cur;
  return most - std::min(most, bytes_of("/proc/self/status", label));
}

}  // namespace

Machine machine() {
  Machine m;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) m.hostname = name.data();
  m.cpu = field("/proc/cpuinfo", "model name");
  const std::vector<int> allowed = allowed_processors();  // affinity respects the cgroup's cpuset
  const CgroupLimits limits = cgroup_limits();
  m.quota = limits.cores;
  m.cores = std::max(1, int(allowed.size()));
  if (m.quota > 0) m.cores = std::min(m.cores, std::max(1, int(std::ceil(m.quota))));
  m.memory = std::min(all_memory(), limits.memory);
  return m;
}

std::size_t available_memory(std::size_t processes) {
  // Without /proc it is unknown how much is in use.
  const std::size_t free =
      bytes_of("/proc/meminfo", "MemAvailable") + bytes_of("/proc/meminfo", "SwapFree");
  const std::size_t shared = std::min(free > 0 ? free : all_memory(), cgroup_limits().available);
  const std::size_t own =
      std::min(room_below(RLIMIT_AS, "VmSize"), room_below(RLIMIT_DATA, "VmData"));
  return std::min(shared / std::max<std::size_t>(processes, 1), own);
}

std::size_t last_cache() {
  const std::vector<int> allowed = allowed_processors();
  if (allowed.empty()) return 0;
  const fs::path caches = "/sys/devices/system/cpu/cpu" + std::to_string(allowed[0]) + "/cache";
  std::size_t most = 0;
  std::error_code ignored;
  for (fs::directory_iterator i(caches, ignored), end; !ignored && i != end; i.increment(ignored)) {
    std::size_t kilobytes = 0;  // "32768K"
    std::ifstream(i->path() / "size") >> kilobytes;
    most = std::max(most, kilobytes * 1024);
  }
  return most;
}

std::size_t process_memory() {
  const std::size_t proportional = bytes_of("/proc/self/smaps_rollup", "Pss");
  const std::size_t resident =
      proportional > 0 ? proportional : bytes_of("/proc/self/status", "VmRSS");
  rusage used{};
  if (resident > 0 || getrusage(RUSAGE_SELF, &used) != 0) return resident;
  return std::size_t(used.ru_maxrss) * 1024;  // peak so far
}

}  // namespace lockstep::collectives
