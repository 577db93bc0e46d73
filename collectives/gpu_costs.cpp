// SPDX-License-Identifier: MIT
// Where the figures are from:
// - NVLink, of a link and a direction: NVIDIA's pages of V100 (6 links, 300 GB/s in both directions
//   together), A100 (12, 600 GB/s), H100 (18, 900 GB/s) and B200 (18, 1.8 TB/s).
// - PCI Express: of 4.0 x16, which carries 31.5 GB/s, three quarters; between the processors of a
//   host what NCCL 2.28 assumes (src/graph/topo.h, SKL_QPI_BW). All GPUs that can be used have 4.0.
// - A kernel that the host starts and waits for: what NVIDIA's "Getting Started with CUDA Graphs"
//   (2019) measures beside the kernel's own time on a V100.
#include "collectives/gpu_costs.h"

#include <algorithm>
#include <set>

#include "engine/device/device.h"

namespace lockstep::collectives {
namespace {

using engine::GpuLink;
using engine::GpuTopology;

constexpr double kPcie = 24e9, kBetweenProcessors = 10e9;
constexpr double kKernel = 7e-6;
constexpr double kLeastMemory = 1e12;  // where a GPU does not say

// In `gpus` of each rank; none where one is missing.
std::optional<std::vector<std::size_t>> places(const GpuTopology& gpus,
                                               const std::vector<std::string>& devices) {
  std::vector<std::size_t> found;
  for (const std::string& name : devices) {
    const engine::DeviceId id = engine::parse_device_id(name);
    const auto gpu = std::ranges::find(gpus.gpus, id.index, &GpuTopology::Gpu::index);
    if (id.kind != "cuda" || gpu == gpus.gpus.end()) return std::nullopt;
    found.push_back(std::size_t(gpu - gpus.gpus.begin()));
  }
  return found;
}

// Between two GPUs in each direction; of a switch, and of PCI Express, also to all others together.
double bandwidth(const GpuTopology::Pair& pair) {
  switch (pair.link) {
    case GpuLink::kNvlink:
    case GpuLink::kNvswitch:
      return pair.links * nvlink_bandwidth(pair.generation);
    case GpuLink::kAcrossNodes:
      return kBetweenProcessors;
    default:
      return kPcie;
  }
}

}  // namespace

double nvlink_bandwidth(int generation) {
  return generation >= 5 ? 50e9 : 25e9;
}

// Ranks on one GPU share its memory, its links and its port: each has its part of them.
std::optional<HostCosts> gpu_costs(const GpuTopology& gpus,
                                   const std::vector<std::string>& devices) {
  const auto found = places(gpus, devices);
  if (!found || std::set(found->begin(), found->end()).size() < 2) return std::nullopt;
  const std::vector<std::size_t>& at = *found;
  const auto sharing = [&](std::size_t gpu) { return double(std::ranges::count(at, gpu)); };
  double memory = 0, port = 0;
  for (const std::size_t gpu : at) {
    const double whole = gpus.gpus[gpu].memory_bandwidth;
    const double part = (whole > 0 ? whole : kLeastMemory) / sharing(gpu);
    memory = memory == 0 ? part : std::min(memory, part);
  }
  HostCosts costs;
  costs.link = LinkClass::kPcie;
  costs.block = 0;  // a kernel takes all of them at once
  costs.reduction = kKernel;
  costs.passes = {{0, memory, memory}};
  for (std::size_t a = 0; a < at.size(); ++a) {
    for (std::size_t b = a + 1; b < at.size(); ++b) {
      const std::size_t low = std::min(at[a], at[b]), high = std::max(at[a], at[b]);
      const auto pair = std::ranges::find_if(
          gpus.pairs, [&](const GpuTopology::Pair& p) { return p.a == low && p.b == high; });
      if (low == high || pair == gpus.pairs.end() || pair->link == GpuLink::kSame) {
        costs.links.push_back({int(a), int(b), memory});
      } else if (pair->link == GpuLink::kNvlink) {
        costs.link = LinkClass::kNvlink;
        costs.links.push_back({int(a), int(b), bandwidth(*pair) / (sharing(low) * sharing(high))});
      } else {
        if (pair->link == GpuLink::kNvswitch) costs.link = LinkClass::kNvlink;
        const double part = bandwidth(*pair) / std::max(sharing(low), sharing(high));
        port = port == 0 ? part : std::min(port, part);
      }
    }
  }
  costs.port = port;
  return costs;
}

void assume_gpu_costs(Topology& topology, const GpuTopology& gpus) {
  if (topology.processes.size() != 1) return;
  std::vector<std::string> devices;
  for (const Topology::Rank& rank : topology.ranks) devices.push_back(rank.device);
  if (const auto costs = gpu_costs(gpus, devices)) topology.hosts[0].costs = *costs;
}

}  // namespace lockstep::collectives
