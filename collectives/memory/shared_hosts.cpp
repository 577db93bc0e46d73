// SPDX-License-Identifier: MIT
#include "collectives/memory/shared_hosts.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "collectives/memory/mapped_memory.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// Returns what processes of a host that can map each other's memory have in common.
std::string common_ground() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code error;  // without the link the boot must do
  const auto space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  return fmt::format("{} {} {}", boot, space.string(), geteuid());
}

bool can_map(const std::string& address) {
  try {
    map_peer(mapping_address(address));
    return true;
  } catch (const engine::Error&) {
    return false;
  }
}

}  // namespace

std::vector<int> shared_hosts(int process, const TextExchange& all_gather) {
  const MappedMemory memory("lockstep host", kPageBytes);
  const std::string ground = common_ground() + "\n";
  const std::vector<std::string> all =
      all_gather(ground + to_text(memory.address()), "memory that a host shares");
  const auto first = std::ranges::find_if(
      all, [&](const std::string& other) { return other.starts_with(ground); });
  int leader = int(first - all.begin());
  if (leader != process && !can_map(first->substr(ground.size()))) leader = process;
  const std::vector<std::string> leaders =
      all_gather(std::to_string(leader), "processes that share a host");
  std::vector<int> hosts;
  std::vector<std::string> known;
  for (const std::string& one : leaders) {
    const auto found = std::ranges::find(known, one);
    hosts.push_back(int(found - known.begin()));
    if (found == known.end()) known.push_back(one);
  }
  return hosts;
}

}  // namespace lockstep::collectives
