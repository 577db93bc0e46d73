// SPDX-License-Identifier: MIT
// Sources of the figures:
// - NVLink, per link and direction: NVIDIA's pages of V100 (6 links, 300 GB/s in both directions
//   together), A100 (12, 600 GB/s), H100 (18, 900 GB/s) and B200 (18, 1.8 TB/s).
// - PCI Express: three quarters of the 31.5 GB/s of 4.0 x16; between the processors of a host, what
//   NCCL 2.28 assumes (src/graph/topo.h, SKL_QPI_BW). All supported GPUs have 4.0.
// - A kernel that the host starts and waits for: the overhead besides the kernel's own time that
//   NVIDIA's "Getting Started with CUDA Graphs" (2019) measures on a V100.
#include "collectives/cost/gpu_costs.h"

#include <algorithm>

#include "engine/device/device.h"

namespace lockstep::collectives {
namespace {

using engine::GpuLink;
using engine::GpuTopology;

constexpr double kPcie = 24e9, kBetweenProcessors = 10e9;
constexpr double kKernel = 7e-6;
constexpr double kLeastMemory = 1e12;  // if a GPU reports none

std::size_t index_of(const std::vector<std::string>& names, const std::string& name) {
  return std::size_t(std::ranges::find(names, name) - names.begin());
}

// Returns the pair of two GPUs, which may be given in any order; null if unknown.
const GpuTopology::Pair* pair_of(const GpuTopology& gpus, const std::string& a,
                                 const std::string& b) {
  const auto place = [&](const std::string& name) {
    const engine::DeviceId id = engine::parse_device_id(name);
    const auto gpu = std::ranges::find(gpus.gpus, id.index, &GpuTopology::Gpu::index);
    return id.kind == "cuda" ? std::size_t(gpu - gpus.gpus.begin()) : gpus.gpus.size();
  };
  const auto [low, high] = std::minmax({place(a), place(b)});
  const auto pair = std::ranges::find_if(
      gpus.pairs, [&](const GpuTopology::Pair& p) { return p.a == low && p.b == high; });
  return pair == gpus.pairs.end() ? nullptr : &*pair;
}

// Returns the bandwidth between two GPUs in each direction. For a switch and PCI Express, it is
// also that to all others together.
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

// Returns the specified figures of each GPU and each path between two, as if they were measured.
std::optional<GpuPaces> specified(const GpuTopology& gpus, const std::vector<std::string>& each) {
  GpuPaces paces;
  paces.kernel = kKernel;
  paces.signal = HostCosts().signal;
  paces.links.resize(each.size() * each.size());
  for (std::size_t a = 0; a < each.size(); ++a) {
    const engine::DeviceId id = engine::parse_device_id(each[a]);
    const auto gpu = std::ranges::find(gpus.gpus, id.index, &GpuTopology::Gpu::index);
    if (id.kind != "cuda" || gpu == gpus.gpus.end()) return std::nullopt;
    paces.memory.push_back(gpu->memory_bandwidth > 0 ? gpu->memory_bandwidth : kLeastMemory);
    for (std::size_t b = 0; b < each.size(); ++b) {
      const GpuTopology::Pair* pair = pair_of(gpus, each[a], each[b]);
      paces.links[a * each.size() + b] = pair == nullptr ? kPcie : bandwidth(*pair);
    }
  }
  return paces;
}

}  // namespace

double nvlink_bandwidth(int generation) {
  return generation >= 5 ? 50e9 : 25e9;
}

std::vector<std::string> each_gpu(const std::vector<std::string>& devices) {
  std::vector<std::string> each;
  for (const std::string& device : devices)
    if (index_of(each, device) == each.size()) each.push_back(device);
  return each;
}

// Divides a GPU's memory, links and port equally among its ranks.
HostCosts gpu_costs(const GpuTopology& gpus, const std::vector<std::string>& devices,
                    const GpuPaces& paces) {
  const std::vector<std::string> each = each_gpu(devices);
  const auto sharing = [&](const std::string& gpu) {
    return double(std::ranges::count(devices, gpu));
  };
  double memory = 0, port = 0;
  for (std::size_t gpu = 0; gpu < each.size(); ++gpu) {
    const double part = paces.memory[gpu] / sharing(each[gpu]);
    memory = memory == 0 ? part : std::min(memory, part);
  }
  HostCosts costs;
  costs.link = LinkClass::kPcie;
  costs.signal = paces.signal;
  costs.block = 0;  // a kernel takes all of them at once
  costs.reduction = paces.kernel;
  costs.passes = {{0, memory, memory}};
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = a + 1; b < devices.size(); ++b) {
      const std::size_t from = index_of(each, devices[a]), to = index_of(each, devices[b]);
      const GpuTopology::Pair* pair = pair_of(gpus, devices[a], devices[b]);
      const GpuLink link = pair == nullptr ? GpuLink::kUnknown : pair->link;
      const double slower =
          std::min(paces.links[from * each.size() + to], paces.links[to * each.size() + from]);
      const double here = sharing(devices[a]), there = sharing(devices[b]);
      if (link == GpuLink::kNvlink || link == GpuLink::kNvswitch) costs.link = LinkClass::kNvlink;
      if (from == to || link == GpuLink::kSame) {
        costs.links.push_back({int(a), int(b), memory});
      } else if (link == GpuLink::kNvlink) {
        costs.links.push_back({int(a), int(b), slower / (here * there)});
      } else {
        const double part =
            (paces.port > 0 ? std::min(paces.port, slower) : slower) / std::max(here, there);
        port = port == 0 ? part : std::min(port, part);
      }
    }
  }
  costs.port = port;
  return costs;
}

std::optional<HostCosts> gpu_costs(const GpuTopology& gpus,
                                   const std::vector<std::string>& devices) {
  const std::vector<std::string> each = each_gpu(devices);
  const auto paces = specified(gpus, each);
  if (!paces || each.size() < 2) return std::nullopt;
  return gpu_costs(gpus, devices, *paces);
}

void assume_gpu_costs(Topology& topology, const GpuTopology& gpus) {
  if (topology.processes.size() != 1) return;
  std::vector<std::string> devices;
  for (const Topology::Rank& rank : topology.ranks) devices.push_back(rank.device);
  if (const auto costs = gpu_costs(gpus, devices)) topology.hosts[0].costs = *costs;
}

}  // namespace lockstep::collectives
