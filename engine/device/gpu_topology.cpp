// SPDX-License-Identifier: MIT
#include "engine/device/gpu_topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "engine/base/quantity.h"

namespace lockstep::engine {
namespace {

// Collects members by group, in the order in which the groups first occur.
class Groups {
 public:
  void add(const std::string& group, std::string member) {
    for (auto& [name, members] : groups_)
      if (name == group) return members.push_back(std::move(member));
    groups_.push_back({group, {std::move(member)}});
  }
  const auto& all() const { return groups_; }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> groups_;
};

std::string links_of(int links) {
  return count_text(std::uint64_t(links), "link");
}

}  // namespace

std::string describe(const GpuTopology::Pair& pair) {
  const std::string nvlink =
      pair.generation == 0 ? "NVLink" : fmt::format("NVLink {}", pair.generation);
  switch (pair.link) {
    case GpuLink::kUnknown:
      break;
    case GpuLink::kSame:
      return "one GPU";
    case GpuLink::kNvlink:
      return fmt::format("{}, {}", nvlink, links_of(pair.links));
    case GpuLink::kNvswitch:
      return fmt::format("NVSwitch, {} of {}", links_of(pair.links), nvlink);
    case GpuLink::kPcieSwitch:
      return "PCI Express through switches";
    case GpuLink::kHostBridge:
      return "PCI Express through a processor";
    case GpuLink::kAcrossNodes:
      return "PCI Express from one NUMA node to another";
  }
  return fmt::format("a way that the driver ranks {} (0 is the fastest)", pair.rank);
}

std::vector<std::string> describe(const GpuTopology& topology) {
  const std::vector<GpuTopology::Gpu>& gpus = topology.gpus;
  if (gpus.size() < 2) return {};
  Groups ways, nodes;
  for (const GpuTopology::Pair& pair : topology.pairs) {
    ways.add(describe(pair) + (pair.reach ? "" : ", no access to each other's memory"),
             fmt::format("{}-{}", gpus[pair.a].index, gpus[pair.b].index));
  }
  for (const GpuTopology::Gpu& gpu : gpus) {
    nodes.add(gpu.numa_node ? fmt::format("NUMA node {}", *gpu.numa_node) : "no NUMA node",
              fmt::format("cuda:{}", gpu.index));
  }
  std::vector<std::string> lines;
  for (const auto& [way, pairs] : ways.all()) {
    const bool all = pairs.size() > 1 && pairs.size() == topology.pairs.size();
    lines.push_back(fmt::format("{}: {}", way,
                                all ? fmt::format("each of {} GPUs with each", gpus.size())
                                    : fmt::format("cuda {}", fmt::join(pairs, " "))));
  }
  std::string places;
  for (const auto& [node, members] : nodes.all())
    places += fmt::format("{}{} on {}", places.empty() ? "" : "; ", fmt::join(members, " "), node);
  lines.push_back(places);
  if (!topology.note.empty()) lines.push_back(topology.note);
  return lines;
}

}  // namespace lockstep::engine
