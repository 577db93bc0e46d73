// SPDX-License-Identifier: MIT
#include "collectives/topology/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace lockstep::collectives {
namespace {

namespace fs = std::filesystem;

// Version 1 writes "no limit" as the largest multiple of a page.
constexpr std::size_t kAbsurd = std::size_t(1) << 60;

std::string file_text(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  return out.str();
}

// Returns the number after `label` at the beginning of a line, or at the beginning of the text.
std::optional<std::size_t> number_in_line(const fs::path& file, std::string_view label = {}) {
  std::istringstream lines(file_text(file));
  for (std::string line; std::getline(lines, line);) {
    if (!label.empty() && line.rfind(std::string(label) + " ", 0) != 0) continue;
    const char* first = line.data() + (label.empty() ? 0 : label.size() + 1);
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(first, line.data() + line.size(), value);
    if (error == std::errc() && end != first) return value;
    return std::nullopt;
  }
  return std::nullopt;
}

void take_memory(CgroupLimits& limits, std::optional<std::size_t> most,
                 std::optional<std::size_t> used, std::optional<std::size_t> cache) {
  if (!most || *most >= kAbsurd) return;
  limits.memory = std::min(limits.memory, *most);
  const std::size_t held = used.value_or(0) - std::min(used.value_or(0), cache.value_or(0));
  limits.available = std::min(limits.available, *most - std::min(*most, held));
}

void take_cores(CgroupLimits& limits, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  const double cores = quota / period;
  limits.cores = limits.cores == 0 ? cores : std::min(limits.cores, cores);
}

void take_version_2(CgroupLimits& limits, const fs::path& group) {
  take_memory(limits, number_in_line(group / "memory.max"),
              number_in_line(group / "memory.current"),
              number_in_line(group / "memory.stat", "inactive_file"));
  std::istringstream cpu(file_text(group / "cpu.max"));
  double quota = 0, period = 0;
  if (cpu >> quota >> period) take_cores(limits, quota, period);  // "max 100000" does not parse
}

void take_version_1(CgroupLimits& limits, const fs::path& group) {
  take_memory(limits, number_in_line(group / "memory.limit_in_bytes"),
              number_in_line(group / "memory.usage_in_bytes"),
              number_in_line(group / "memory.stat", "total_inactive_file"));
  const auto quota = number_in_line(group / "cpu.cfs_quota_us"),
             period = number_in_line(group / "cpu.cfs_period_us");
  if (quota && period) take_cores(limits, double(*quota), double(*period));  // -1 does not parse
}

}  // namespace

CgroupLimits cgroup_limits(const fs::path& membership, const fs::path& mount) {
  CgroupLimits limits;
  std::istringstream lines(file_text(membership));
  for (std::string line; std::getline(lines, line);) {
    // A line is "0::/group" (version 2) or "7:cpu,cpuacct:/group" (version 1).
    const std::size_t one = line.find(':'), two = line.find(':', one + 1);
    if (one == std::string::npos || two == std::string::npos) continue;
    const std::string controllers = line.substr(one + 1, two - one - 1);
    const fs::path base = controllers.empty() ? mount : mount / controllers;
    // A container may list a path of the host, unknown here. Then the mount itself is the group.
    fs::path group = fs::path(line.substr(two + 1)).relative_path();
    while (true) {
      if (controllers.empty())
        take_version_2(limits, base / group);
      else
        take_version_1(limits, base / group);
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return limits;
}

}  // namespace lockstep::collectives
