// SPDX-License-Identifier: MIT
#include "collectives/topology/example_topologies.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// Returns the costs of a host with two processors and twelve memory channels.
HostCosts server() {
  HostCosts costs;
  costs.passes = {{16e6, 40e9, 900e9}, {256e6, 14e9, 220e9}};
  return costs;
}

// Returns the costs of devices with links. Blocks cost nothing, since a kernel takes all blocks at
// once. Signals are flags in each other's memory.
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

// Returns eight V100 in a hybrid cube mesh. Each has six links of 25 GB/s to four others, and PCI
// Express to the other three. The source is "NVIDIA DGX-1 With Tesla V100 System Architecture"
// (WP-08437, 2017); devices are numbered as `nvidia-smi topo -m` shows them there.
HostCosts dgx1() {
  constexpr double kLink = 25e9;
  constexpr std::array<std::pair<int, int>, 8> kDouble{
      {{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}}};
  constexpr std::array<std::pair<int, int>, 8> kSingle{
      {{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}}};
  HostCosts costs = devices(900e9, 11e9);
  for (const auto& [a, b] : kDouble) costs.links.push_back({a, b, 2 * kLink});
  for (const auto& [a, b] : kSingle) costs.links.push_back({a, b, kLink});
  return costs;
}

// Returns four V100. Two links of 25 GB/s connect each pair.
HostCosts four_devices() {
  HostCosts costs = devices(900e9, 11e9);
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b) costs.links.push_back({a, b, 50e9});
  return costs;
}

// Returns a network whose cards access the memory of ranks directly (RDMA).
WireCosts fabric(double bandwidth) {
  return {.latency = 5e-6, .bandwidth = bandwidth, .processor = 0, .message = 1e-6};
}

WireCosts ethernet(double bandwidth) {
  return {.latency = 20e-6, .bandwidth = bandwidth, .processor = 0.25e-9, .message = 3e-6};
}

struct Size {
  int hosts = 0, ranks = 0;  // ranks: per host
};

// Parses two whole numbers with an x between them. Numbers out of range become the largest int.
std::optional<Size> size_of(std::string_view name) {
  const auto number = [&name](int& into) {
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), into);
    if (error == std::errc::result_out_of_range) into = std::numeric_limits<int>::max();
    const bool any = end != name.data() && name.front() != '-';
    name.remove_prefix(std::size_t(end - name.data()));
    return any;
  };
  Size size;
  if (!number(size.hosts) || !name.starts_with('x')) return std::nullopt;
  name.remove_prefix(1);
  if (!number(size.ranks) || !name.empty()) return std::nullopt;
  return size;
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

bool names_example(std::string_view name) {
  return size_of(name).has_value();
}

Topology example_topology(std::string_view name) {
  if (name == "1x8") return equal_hosts(1, 8, dgx1(), {}, 1, "cuda");
  if (name == "4x4") return equal_hosts(4, 4, four_devices(), ethernet(2.95e9), 1, "cuda");
  if (name == "8x8") return equal_hosts(8, 8, devices(3e12, 400e9), fabric(12e9), 1, "cuda");
  if (name == "16x8") return equal_hosts(16, 8, server(), ethernet(11.8e9), 64);
  if (name == "128x8") return equal_hosts(128, 8, devices(3e12, 400e9), fabric(384e9), 1, "cuda");
  const std::optional<Size> size = size_of(name);
  std::string known;
  for (const ExampleTopology& example : example_topologies())
    known += (known.empty() ? "" : ", ") + std::string(example.name);
  engine::require(size.has_value(),
                  "no example topology is named '{}'; known: {}, and any other HOSTSxRANKS", name,
                  known);
  const auto [hosts, ranks] = *size;
  engine::require(hosts > 0 && ranks > 0 && hosts <= kMostExampleHosts &&
                      ranks <= kMostExampleRanksOfAHost &&
                      std::int64_t(hosts) * ranks <= kMostExampleRanks,
                  "'{}' is no example: these have 1 to {} hosts of 1 to {} ranks each, and up to "
                  "{} ranks in all",
                  name, kMostExampleHosts, kMostExampleRanksOfAHost, kMostExampleRanks);
  return equal_hosts(hosts, ranks, server(), ethernet(2.95e9), ranks);
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
