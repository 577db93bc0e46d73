// SPDX-License-Identifier: MIT
#include "collectives/topology/processor_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>

#include "collectives/topology/binding.h"
#include "engine/base/quantity.h"

namespace lockstep::collectives {
namespace {

namespace fs = std::filesystem;

// Parses a list such as "0-3,8". Stops at the first character that does not fit.
std::vector<int> read_list(const std::string& list) {
  constexpr int kMost = 1 << 16;
  std::vector<int> read;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    int first = 0;
    auto [next, error] = std::from_chars(at, end, first);
    if (error != std::errc() || first < 0) break;
    int last = first;
    if (next < end && *next == '-') {
      const auto [after, bad] = std::from_chars(next + 1, end, last);
      if (bad != std::errc()) break;
      next = after;
    }
    for (int number = first; number <= std::min(last, kMost); ++number) read.push_back(number);
    at = next + 1;  // skips the comma
  }
  return read;
}

MachineMap as_the_kernel_says() {
  MachineMap map;
  std::error_code ignored;
  for (fs::directory_iterator i("/sys/devices/system/node", ignored), end; !ignored && i != end;
       i.increment(ignored)) {
    const std::string name = i->path().filename();
    int node = 0;
    if (name.rfind("node", 0) != 0 ||
        std::from_chars(name.data() + 4, name.data() + name.size(), node).ec != std::errc())
      continue;
    std::string list;
    std::ifstream in(i->path() / "cpulist");
    std::getline(in, list);
    for (const int number : read_list(list)) map.processors.push_back({number, number, 0, node});
    if (!list.empty()) map.nodes.push_back({node, 0});
  }
  std::ranges::sort(map.processors);
  std::ranges::sort(map.nodes);
  return map;
}

}  // namespace

MachineMap processor_map() {
  const std::optional<MachineMap> found = hwloc::this_machine();
  return part_of(found ? *found : as_the_kernel_says(), allowed_processors());
}

MachineMap part_of(const MachineMap& map, std::span<const int> processors) {
  MachineMap part;
  part.last_cache = map.last_cache;
  const int first_node = map.nodes.empty() ? 0 : map.nodes[0].number;
  std::set<int> nodes;
  for (const int number : processors) {
    const auto known =
        std::ranges::lower_bound(map.processors, number, {}, &PlacedProcessor::number);
    const bool is_known = known != map.processors.end() && known->number == number;
    part.processors.push_back(is_known ? *known
                                       : PlacedProcessor{number, number, number, first_node});
    nodes.insert(part.processors.back().node);
  }
  std::ranges::sort(part.processors);
  for (const int node : nodes) {
    const auto known = std::ranges::find(map.nodes, node, &NumaNode::number);
    part.nodes.push_back({node, known == map.nodes.end() ? 0 : known->memory});
  }
  return part;
}

MachineMap together(const MachineMap& a, const MachineMap& b) {
  MachineMap both = a;
  both.last_cache = std::max(a.last_cache, b.last_cache);
  for (const PlacedProcessor& one : b.processors)
    if (!std::ranges::binary_search(a.processors, one.number, {}, &PlacedProcessor::number))
      both.processors.push_back(one);
  for (const NumaNode& one : b.nodes)
    if (std::ranges::count(a.nodes, one.number, &NumaNode::number) == 0) both.nodes.push_back(one);
  std::ranges::sort(both.processors);
  std::ranges::sort(both.nodes);
  return both;
}

std::optional<int> node_of(const MachineMap& map, std::span<const int> processors) {
  std::optional<int> node;
  for (const PlacedProcessor& one : part_of(map, processors).processors) {
    if (node && *node != one.node) return std::nullopt;
    node = one.node;
  }
  return node;
}

std::vector<int> numbers(const MachineMap& map) {
  std::vector<int> all;
  for (const PlacedProcessor& one : map.processors) all.push_back(one.number);
  return all;
}

std::vector<std::string> describe_nodes(const MachineMap& map) {
  std::vector<std::string> texts;
  for (const NumaNode& node : map.nodes) {
    std::set<int> cores;
    std::size_t count = 0;
    for (const PlacedProcessor& one : map.processors) {
      if (one.node != node.number) continue;
      ++count;
      cores.insert(one.core);
    }
    texts.push_back(fmt::format("node {}: {} on {}", node.number,
                                engine::count_text(std::uint64_t(count), "processor"),
                                engine::count_text(cores.size(), "core")));
    if (node.memory > 0) texts.back() += fmt::format(", {:.1f} GiB", double(node.memory) / 0x1p30);
  }
  return texts;
}

}  // namespace lockstep::collectives
