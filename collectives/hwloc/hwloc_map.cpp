// SPDX-License-Identifier: MIT
#include <hwloc.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>

#include "collectives/topology/machine_map.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"

namespace lockstep::collectives::hwloc {
namespace {

constexpr std::size_t kMostProcessors = 4096, kMostDescription = 1000;

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, Destroy>;

HwlocTopology create() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return nullptr;
  return HwlocTopology(made);
}

// Returns the nearest object around a processor of which `is` holds.
hwloc_obj_t around(hwloc_obj_t processor, bool (*is)(hwloc_obj_type_t)) {
  hwloc_obj_t at = processor;
  while (at != nullptr && !is(at->type)) at = at->parent;
  return at;
}

// Returns the last cache, which is the outermost that holds data.
hwloc_obj_t outermost_cache(hwloc_obj_t processor) {
  hwloc_obj_t last = nullptr;
  for (hwloc_obj_t at = processor; at != nullptr; at = at->parent)
    if (hwloc_obj_type_is_dcache(at->type) != 0) last = at;
  return last;
}

// Returns the name of an object around several processors: the smallest of their numbers.
int name_of(hwloc_obj_t around, hwloc_obj_t processor) {
  const hwloc_obj_t of = around == nullptr ? processor : around;
  return hwloc_bitmap_first(of->cpuset);
}

MachineMap map_of(hwloc_topology_t topology) {
  MachineMap map;
  std::map<int, std::size_t> memory;
  for (hwloc_obj_t at = nullptr;
       (at = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, at)) != nullptr;)
    memory[int(at->os_index)] = std::size_t(at->attr->numanode.local_memory);
  for (hwloc_obj_t at = nullptr;
       (at = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, at)) != nullptr;) {
    const hwloc_obj_t core =
        around(at, [](hwloc_obj_type_t type) { return type == HWLOC_OBJ_CORE; });
    const hwloc_obj_t cache = outermost_cache(at);
    // If one place has several memories, the first is the ordinary one.
    const int node = std::max(0, hwloc_bitmap_first(at->nodeset));
    map.processors.push_back({int(at->os_index), name_of(core, at), name_of(cache, at), node});
    if (cache != nullptr) map.last_cache = std::size_t(cache->attr->cache.size);
    if (std::ranges::count(map.nodes, node, &NumaNode::number) == 0)
      map.nodes.push_back({node, memory[node]});
  }
  std::ranges::sort(map.processors);
  std::ranges::sort(map.nodes);
  return map;
}

// Returns how many processors `text` asks for, since hwloc would create any number. It multiplies
// all counts, which are the numbers outside of brackets that follow a colon or a space or begin the
// text.
std::size_t described_processors(const std::string& text) {
  std::size_t product = 1;
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '(') ++depth;
    if (text[at] == ')') --depth;
    const bool begins = at == 0 || text[at - 1] == ':' || text[at - 1] == ' ';
    if (depth != 0 || !begins || std::isdigit(static_cast<unsigned char>(text[at])) == 0) continue;
    std::size_t number = 0;
    for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at)
      number = std::min(number * 10 + std::size_t(text[at] - '0'), kMostProcessors + 1);
    --at;
    product = std::min(product * number, kMostProcessors + 1);
  }
  return product;
}

}  // namespace

bool available() {
  return true;
}

std::string version() {
  return HWLOC_VERSION;
}

std::optional<MachineMap> this_machine() {
  const HwlocTopology topology = create();
  if (topology == nullptr) return std::nullopt;
  // Excludes the x86 backend, which asks each processor itself and so moves a thread to each.
  hwloc_topology_set_components(topology.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc_topology_load(topology.get()) != 0) return std::nullopt;
  MachineMap map = map_of(topology.get());
  if (map.processors.empty()) return std::nullopt;
  return map;
}

MachineMap described_machine(const std::string& description) {
  const auto refuse = [&](const std::string& why) {
    engine::fail(engine::Code::kInvalid,
                 "\"{}\" describes no machine: {}; write it like \"numa:2 core:4 pu:2\"",
                 engine::brief(description), why);
  };
  if (description.size() > kMostDescription) refuse("it is too long");
  const std::size_t processors = described_processors(description);
  if (processors == 0) refuse("a level has nothing in it");
  if (processors > kMostProcessors)
    refuse("it has more than " + std::to_string(kMostProcessors) + " processors");
  const HwlocTopology topology = create();
  if (topology == nullptr ||
      hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0 ||
      hwloc_topology_load(topology.get()) != 0)
    refuse("hwloc cannot read it");
  return map_of(topology.get());
}

}  // namespace lockstep::collectives::hwloc
