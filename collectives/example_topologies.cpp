// SPDX-License-Identifier: MIT
#include "collectives/example_topologies.h"

#include <array>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// A host of two processors with twelve channels of memory.
HostCosts server() {
  HostCosts costs;
  costs.passes = {{16e6, 40e9, 900e9}, {256e6, 14e9, 220e9}};
  return costs;
}

// Devices with links: no cost a block, since a kernel takes all blocks at once; signals are flags
// in each other's memory.
HostCosts devices(double memory, double port) {
  HostCosts costs;
  costs.link = LinkClass::kNvlink;
  costs.signal = 2e-6;
  costs.step = 0.3e-6;
  costs.block = 0;
  costs.passes = {{0, memory, memory}};
  costs.port = port;
  return costs;
}

// Eight V100 in a hybrid cube mesh: six links of 25 GB/s each, to four others; to the other three
// over PCI Express. Ranks stand along the circle of double links, so that a ring uses only these.
Topology dgx1() {
  constexpr double kLink = 25e9;
  constexpr std::array<int, 8> kDevice{0, 3, 2, 1, 5, 6, 7, 4};  // of each rank
  constexpr std::array<std::pair<int, int>, 8> kDouble{
      {{0, 3}, {3, 2}, {2, 1}, {1, 5}, {5, 6}, {6, 7}, {7, 4}, {4, 0}}};
  constexpr std::array<std::pair<int, int>, 8> kSingle{
      {{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}}};
  std::array<int, 8> rank{};
  for (std::size_t r = 0; r < kDevice.size(); ++r) rank[std::size_t(kDevice[r])] = int(r);
  HostCosts costs = devices(900e9, 11e9);
  const auto link = [&](std::pair<int, int> ends, double bandwidth) {
    costs.links.push_back(
        {rank[std::size_t(ends.first)], rank[std::size_t(ends.second)], bandwidth});
  };
  for (const auto& ends : kDouble) link(ends, 2 * kLink);
  for (const auto& ends : kSingle) link(ends, kLink);
  Topology topology = equal_hosts(1, 8, costs, {}, 1, "cuda");
  for (std::size_t r = 0; r < kDevice.size(); ++r)
    topology.ranks[r].device = fmt::format("cuda:{}", kDevice[r]);
  return topology;
}

// Four V100, each linked with each by two links of 25 GB/s.
HostCosts four_devices() {
  HostCosts costs = devices(900e9, 11e9);
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b) costs.links.push_back({a, b, 50e9});
  return costs;
}

// A network card that reads and writes the memory of ranks by itself.
WireCosts fabric(double bandwidth) {
  return {.latency = 5e-6, .bandwidth = bandwidth, .processor = 0, .message = 1e-6};
}

WireCosts ethernet(double bandwidth) {
  return {.latency = 20e-6, .bandwidth = bandwidth, .processor = 0.25e-9, .message = 3e-6};
}

}  // namespace

const std::vector<ExampleTopology>& example_topologies() {
  static const std::vector<ExampleTopology> all{
      {"1x1", "one processor"},
      {"1x4", "a server, 4 ranks on processors"},
      {"1x8", "8 GPUs on one host, NVLink as a hybrid cube mesh"},
      {"3x1", "3 hosts of one rank over 25 Gbit/s Ethernet"},
      {"4x4", "4 hosts of 4 GPUs with NVLink over 25 Gbit/s Ethernet"},
      {"8x8", "8 hosts of 8 GPUs with NVSwitch, 100 Gbit/s to each host"},
      {"16x8", "16 servers of 8 ranks over 100 Gbit/s Ethernet"},
      {"128x8", "128 hosts of 8 GPUs with NVSwitch, 8 x 400 Gbit/s to each host"},
  };
  return all;
}

Topology example_topology(std::string_view name) {
  if (name == "1x1") return equal_hosts(1, 1, server(), {});
  if (name == "1x4") return equal_hosts(1, 4, server(), {}, 4);
  if (name == "1x8") return dgx1();
  if (name == "3x1") return equal_hosts(3, 1, server(), ethernet(2.95e9));
  if (name == "4x4") return equal_hosts(4, 4, four_devices(), ethernet(2.95e9), 1, "cuda");
  if (name == "8x8") return equal_hosts(8, 8, devices(3e12, 400e9), fabric(12e9), 1, "cuda");
  if (name == "16x8") return equal_hosts(16, 8, server(), ethernet(11.8e9), 64);
  if (name == "128x8") return equal_hosts(128, 8, devices(3e12, 400e9), fabric(384e9), 1, "cuda");
  std::string known;
  for (const ExampleTopology& example : example_topologies())
    known += (known.empty() ? "" : ", ") + std::string(example.name);
  engine::fail(engine::Code::kInvalid, "no example topology is named '{}'; known: {}", name, known);
}

Topology equal_hosts(int hosts, int ranks, const HostCosts& costs, const WireCosts& wire, int cores,
                     std::string_view device) {
  Topology topology;
  topology.wire = wire;
  topology.costs_are = "described";
  for (int host = 0; host < hosts; ++host) {
    topology.hosts.push_back({.name = fmt::format("h{}", host), .costs = costs});
    for (int rank = 0; rank < ranks; ++rank) {
      const int process = int(topology.processes.size());
      topology.processes.push_back(
          {.host = host, .pid = 0, .cores = cores, .first_rank = process, .replicas = 1});
      topology.ranks.push_back(
          {.process = process, .host = host, .device = fmt::format("{}:{}", device, rank)});
    }
  }
  return topology;
}

}  // namespace lockstep::collectives
