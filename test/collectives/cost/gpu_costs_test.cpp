// SPDX-License-Identifier: MIT
#include "collectives/cost/gpu_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/topology/ring_order.h"

namespace lockstep::collectives {
namespace gpu_costs_test {

using engine::GpuLink;
using engine::GpuTopology;
using testing::ElementsAre;
using testing::IsEmpty;

// Returns this many GPUs with the same link between all pairs.
GpuTopology alike(int count, GpuTopology::Pair link) {
  GpuTopology topology;
  for (int gpu = 0; gpu < count; ++gpu)
    topology.gpus.push_back({.index = gpu, .memory_bandwidth = 3e12});
  for (std::size_t a = 0; a < topology.gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < topology.gpus.size(); ++b) {
      link.a = a, link.b = b;
      topology.pairs.push_back(link);
    }
  }
  return topology;
}

GpuTopology over_switches(int count) {
  return alike(count, {.link = GpuLink::kNvswitch, .links = 18, .generation = 4});
}

Topology one_process(const std::vector<std::string>& devices) {
  Topology topology;
  topology.hosts.push_back({.name = "h"});
  topology.processes.push_back({.replicas = int(devices.size())});
  for (const std::string& device : devices) topology.ranks.push_back({.device = device});
  return topology;
}

TEST(GpuCosts, OfSwitchesEachGpuHasAPort) {
  const auto costs = gpu_costs(over_switches(4), {"cuda:0", "cuda:1", "cuda:3"});
  ASSERT_TRUE(costs);
  EXPECT_EQ(costs->link, LinkClass::kNvlink);
  EXPECT_EQ(costs->port, 18 * 25e9);
  EXPECT_THAT(costs->links, IsEmpty());
  EXPECT_EQ(costs->pass(1e6).core, 3e12);
  EXPECT_EQ(costs->block, 0);
}

TEST(GpuCosts, DirectLinksAreThePairs) {
  GpuTopology gpus = alike(3, {.link = GpuLink::kHostBridge});
  gpus.pairs[0] = {.a = 0, .b = 1, .link = GpuLink::kNvlink, .links = 4, .generation = 3};
  gpus.pairs[2] = {.a = 1, .b = 2, .link = GpuLink::kNvlink, .links = 2, .generation = 5};
  const auto costs = gpu_costs(gpus, {"cuda:0", "cuda:1", "cuda:2"});
  ASSERT_TRUE(costs);
  EXPECT_EQ(costs->link, LinkClass::kNvlink);
  EXPECT_THAT(costs->links, ElementsAre(PeerLink{0, 1, 100e9}, PeerLink{1, 2, 100e9}));
  EXPECT_EQ(costs->port, 24e9);
}

TEST(GpuCosts, BetweenProcessorsPciExpressIsSlower) {
  GpuTopology gpus = alike(3, {.link = GpuLink::kPcieSwitch});
  gpus.pairs[1].link = GpuLink::kAcrossNodes;
  EXPECT_EQ(gpu_costs(gpus, {"cuda:0", "cuda:1"})->port, 24e9);
  const auto all = gpu_costs(gpus, {"cuda:0", "cuda:1", "cuda:2"});
  EXPECT_EQ(all->port, 10e9);
  EXPECT_EQ(all->link, LinkClass::kPcie);
}

TEST(GpuCosts, RanksOfOneGpuShareWhatItHas) {
  const auto costs = gpu_costs(over_switches(2), {"cuda:0", "cuda:0", "cuda:1"});
  ASSERT_TRUE(costs);
  EXPECT_EQ(costs->pass(1e6).core, 1.5e12);
  EXPECT_EQ(costs->port, 18 * 25e9 / 2);
  EXPECT_THAT(costs->links, ElementsAre(PeerLink{0, 1, 1.5e12}));
}

TEST(GpuCosts, OfOneGpuAndOfWhatIsNotKnownThereAreNone) {
  const GpuTopology gpus = over_switches(2);
  EXPECT_FALSE(gpu_costs(gpus, {"cuda:1", "cuda:1"}));
  EXPECT_FALSE(gpu_costs(gpus, {"cuda:0", "cuda:2"}));
  EXPECT_FALSE(gpu_costs(gpus, {"cpu:0", "cpu:1"}));
  EXPECT_FALSE(gpu_costs({}, {"cuda:0", "cuda:1"}));
}

TEST(GpuCosts, AreOfAJobOfOneProcessAndStayAssumed) {
  Topology topology = one_process({"cuda:0", "cuda:1"});
  assume_gpu_costs(topology, over_switches(2));
  EXPECT_EQ(topology.hosts[0].costs.port, 18 * 25e9);
  EXPECT_EQ(topology.costs_are, "assumed");
  EXPECT_EQ(topology_from_json(to_json(topology)), topology);
  Topology cpus = one_process({"cpu:0", "cpu:0"});
  assume_gpu_costs(cpus, over_switches(2));
  EXPECT_EQ(cpus, one_process({"cpu:0", "cpu:0"}));
  Topology two = one_process({"cuda:0", "cuda:1"});
  two.processes.push_back({});
  assume_gpu_costs(two, over_switches(2));
  EXPECT_EQ(two.hosts[0].costs, HostCosts());
}

// A ring follows the links of four GPUs, whose circle is not in the order of their numbers. All
// other pairs use PCI Express.
TEST(GpuCosts, ARingGoesAlongTheLinksThatWereFound) {
  GpuTopology gpus = alike(4, {.link = GpuLink::kHostBridge});
  for (GpuTopology::Pair& pair : gpus.pairs) {
    if (pair.a + pair.b == 3) continue;  // 0 and 3, 1 and 2
    pair.link = GpuLink::kNvlink, pair.links = 4, pair.generation = 4;
  }
  Topology topology = one_process({"cuda:0", "cuda:1", "cuda:2", "cuda:3"});
  assume_gpu_costs(topology, gpus);
  const std::vector<int> order = ring_order(topology);
  const std::vector<double> direct = topology.hosts[0].costs.direct(4);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_GT(direct[std::size_t(order[i] * 4 + order[(i + 1) % 4])], 0) << i;
}

}  // namespace gpu_costs_test
}  // namespace lockstep::collectives
