// SPDX-License-Identifier: MIT
#include "collectives/topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "collectives/topology/machine.h"
#include "collectives/topology/processor_map.h"
#include "engine/base/error.h"
#include "test/collectives/tcp/tcp_ranks.h"

namespace lockstep::collectives {
namespace topology_test {

using engine::Code;
using engine::Error;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Topology example() {
  Topology t;
  t.hosts = {{.name = "h0", .cpu = "x", .numa_nodes = 2, .memory = 1000}, {.name = "h1"}};
  t.processes = {{.host = 0, .pid = 7, .cores = 4, .first_rank = 0, .replicas = 2},
                 {.host = 1, .pid = 8, .cores = 1, .first_rank = 2, .replicas = 1},
                 {.host = 0, .pid = 9, .cores = 2, .first_rank = 3, .replicas = 2}};
  t.ranks = {
      {0, 0, "cpu:0"}, {0, 0, "cpu:0", 1}, {1, 1, "cpu:0", 0}, {2, 0, "cpu:0"}, {2, 0, "cpu:1", 0}};
  return t;
}

TEST(Topology, KnowsWhoIsWhere) {
  const Topology t = example();
  EXPECT_THAT(t.host_of_rank(), ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(t.ranks_of_process(2), ElementsAre(3, 4));
  EXPECT_THAT(t.ranks_of_host(0), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(t.ranks_of_host(1), ElementsAre(2));
  EXPECT_THAT(t.ranks_of_host(5), IsEmpty());
  EXPECT_EQ(t.name_of_host(2), "h1");
  EXPECT_EQ(t.describe(),
            "5 ranks in 3 processes on 2 hosts: h0 (4 processors, 2 NUMA nodes), h1 (1 processor, "
            "1 NUMA node)");
}

TEST(Topology, JsonReadsBack) {
  EXPECT_EQ(topology_from_json(to_json(example())), example());
}

TEST(Topology, CostsReadBack) {
  Topology t = example();
  t.costs_are = "measured";
  t.wire = {.latency = 1.5e-5, .bandwidth = 1e9 / 3, .processor = 1e-10 / 3, .message = 0};
  HostCosts& costs = t.hosts[0].costs;
  costs.link = LinkClass::kNvlink;
  costs.cores = 3;
  costs.signal = 1e-7 / 3;
  costs.passes = {{1e6, 2e10 / 3, 4e10}, {2e6, 1e10, 2e10}};
  costs.port = 7e9;
  costs.links = {{0, 3, 2.5e10}};
  t.trials = {{"ring", 2048, 1e-4 / 3, 2e-4 / 3}};
  EXPECT_EQ(topology_from_json(to_json(t)), t);
  EXPECT_EQ(t.cores_of_host(0), 3);
  EXPECT_EQ(t.cores_of_host(1), 1) << "as many as its process with the most";
}

TEST(Topology, PeopleDescribeClustersInShort) {
  const Topology t = topology_from_json(R"({
    "hosts": [{"name": "big", "count": 2, "ranks": 3, "cores": 4},
              {"name": "small", "device": "cuda:0", "costs": {"link": "pcie", "signal_seconds": 1e-6}}],
    "wire": {"bytes_per_second": 1.2e10}})");
  EXPECT_THAT(t.host_of_rank(), ElementsAre(0, 0, 0, 1, 1, 1, 2));
  EXPECT_EQ(t.hosts[0].name, "big0");
  EXPECT_EQ(t.hosts[2].name, "small");
  EXPECT_EQ(t.processes[4].first_rank, 4);
  EXPECT_EQ(t.cores_of_host(1), 4);
  EXPECT_EQ(t.ranks[6].device, "cuda:0");
  EXPECT_EQ(t.hosts[2].costs.signal, 1e-6);
  EXPECT_EQ(t.hosts[2].costs.passes, HostCosts().passes);
  EXPECT_EQ(t.wire.bandwidth, 1.2e10);
  EXPECT_EQ(t.wire.latency, WireCosts().latency);
  EXPECT_EQ(t.costs_are, "described");
  EXPECT_EQ(topology_from_json(to_json(t)), t);
}

TEST(Topology, AHostMayBeDescribedByItsMachine) {
  if (!hwloc::available()) GTEST_SKIP() << "built without hwloc";
  const auto described = [](int ranks, const std::string& more) {
    return topology_from_json(
        R"({"hosts": [{"name": "h", "machine": "numa:2(memory=8GiB) core:4 pu:2", "ranks": )" +
        std::to_string(ranks) + more + "}]}");
  };
  const auto nodes = [&](int ranks) {
    std::vector<int> of;
    for (const auto& rank : described(ranks, "").ranks) of.push_back(rank.numa_node.value_or(-1));
    return of;
  };
  const Topology t = described(8, ", \"count\": 2");
  EXPECT_EQ(t.hosts[1].numa_nodes, 2);
  EXPECT_EQ(t.hosts[1].memory, std::size_t(16) << 30);
  EXPECT_EQ(t.cores_of_host(1), 16);
  EXPECT_EQ(t.ranks[8 + 3].numa_node, 0);
  EXPECT_EQ(t.ranks[8 + 4].numa_node, 1);
  EXPECT_EQ(topology_from_json(to_json(t)), t);
  EXPECT_THAT(nodes(2), ElementsAre(0, 0));
  EXPECT_THAT(nodes(4), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(nodes(8), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(nodes(16), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(nodes(17), testing::Each(-1)) << "they take turns, wherever there is room";
  for (const char* key : {"cores", "numa_nodes", "memory"}) {
    try {
      described(1, std::string(", \"") + key + "\": 1");
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      EXPECT_THAT(error.what(),
                  HasSubstr(std::string("says what \"") + key + "\" says: one of them"));
    }
  }
}

TEST(Topology, ASmallerClusterIsItsFirstHosts) {
  Topology whole = example();
  whole.trials = {{"ring", 2048, 1e-4, 2e-4}};
  const Topology few = whole.first_hosts(1);
  EXPECT_TRUE(few.trials.empty()) << "of others";
  EXPECT_TRUE(whole.first_ranks(2).trials.empty());
  EXPECT_EQ(whole.first_hosts(2), whole);
  EXPECT_THAT(few.host_of_rank(), ElementsAre(0, 0, 0, 0));
  ASSERT_EQ(few.processes.size(), 2u);
  EXPECT_EQ(few.processes[1].first_rank, 2);
  EXPECT_THAT(few.ranks_of_process(1), ElementsAre(2, 3));
  EXPECT_EQ(few.ranks[3].device, "cpu:1");
}

// Processes are joined if they are hosts of their own and reach the memory of each other's GPUs.
// Here there are two machines.
TEST(Topology, ProcessesThatAreHostsOfTheirOwnAreJoined) {
  Topology t;
  t.hosts = {{.name = "a#0", .memory = 7}, {.name = "a#1"}, {.name = "b#0"}, {.name = "b#1"}};
  for (int p = 0; p < 4; ++p) {
    t.processes.push_back({.host = p, .first_rank = 2 * p, .replicas = 2});
    t.ranks.resize(std::size_t(2 * p + 2), {.process = p, .host = p, .device = "cuda:0"});
  }
  EXPECT_EQ(joined(t, {0, 1, 2, 3}), t);
  const Topology one = joined(t, {0, 0, 2, 3});
  EXPECT_THAT(one.host_of_rank(), ElementsAre(0, 0, 0, 0, 1, 1, 2, 2));
  EXPECT_EQ(one.name_of_host(0), "a");
  EXPECT_EQ(one.name_of_host(4), "b#0");
  EXPECT_EQ(one.hosts[0].memory, 7u);
  EXPECT_EQ(one.processes[1].host, 0);
  EXPECT_THAT(joined(t, {0, 1, 0, 1}).host_of_rank(), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
}

TEST(Topology, OfOneProcess) {
  const auto bootstrap = single_process();
  const Topology t = discover(*bootstrap, {"cpu:0", "cpu:0", "cpu:0"});
  ASSERT_EQ(t.hosts.size(), 1u);
  EXPECT_EQ(t.hosts[0].name, machine().hostname);
  ASSERT_EQ(t.processes.size(), 1u);
  EXPECT_EQ(t.processes[0].pid, getpid());
  EXPECT_EQ(t.processes[0].replicas, 3);
  EXPECT_THAT(t.host_of_rank(), ElementsAre(0, 0, 0));
  EXPECT_EQ(t.hosts[0].numa_nodes, int(processor_map().nodes.size()));
  if (t.hosts[0].numa_nodes == 1) {
    EXPECT_EQ(t.ranks[2].numa_node, processor_map().nodes[0].number);
  }
  EXPECT_EQ(topology_from_json(to_json(t)), t);
}

TEST(Topology, RanksAreNumberedProcessByProcessAndEqualNamesAreToldApart) {
  auto bootstraps = in_memory_bootstrap({0, 1, 0, 2}, std::chrono::seconds(20));
  std::vector<Topology> all(4);
  on_threads(4, [&](int process) {
    const auto p = std::size_t(process);
    all[p] =
        discover(*bootstraps[p], std::vector<std::string>(p + 1, "cpu:" + std::to_string(process)));
  });
  for (const Topology& t : all) EXPECT_EQ(t, all[0]);
  const Topology& t = all[0];
  EXPECT_THAT(t.host_of_rank(), ElementsAre(0, 1, 1, 0, 0, 0, 2, 2, 2, 2));
  EXPECT_EQ(t.processes[2].first_rank, 3);
  EXPECT_EQ(t.ranks[3].device, "cpu:2");
  const std::string name = machine().hostname;
  EXPECT_EQ(t.hosts[0].name, name + "#0");
  EXPECT_EQ(t.hosts[2].name, name + "#2");
}

TEST(Topology, AProcessWithoutReplicasIsRefused) {
  const auto bootstrap = single_process();
  EXPECT_THROW(discover(*bootstrap, {}), Error);
}

TEST(Topology, BadTextIsRefusedWithAReason) {
  const std::string good = to_json(example());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, std::string> cases[] = {
      {"", "JSON"},
      {"[]", "JSON"},
      {"{}", "hosts"},
      {good.substr(0, good.size() / 2), "JSON"},
      {with("\"cores\": 4", "\"cores\": 0"), "cores"},
      {with("\"cores\": 4", "\"cores\": 1.5"), "cores"},
      {with("\"cores\": 4", "\"cores\": 99999999999999"), "cores"},
      {with("\"host\": 1", "\"host\": 2"), "host"},
      {with("\"process\": 2", "\"process\": 3"), "process 3"},
      {with("\"device\": \"cpu:0\"", "\"device\": 5"), "must be a text"},
      {with("\"process\": 0", "\"process\": 2"), "process by process"},
      {with("\"signal_seconds\": 5e-07", "\"signal_seconds\": -1"), "from 0 on"},
      {with("\"block_seconds\"", "\"blok_seconds\""), "knows no \"blok_seconds\""},
      {with("\"numa_nodes\"", "\"numa_node\""),
       "a host knows no \"numa_node\"; it knows: name, cpu, numa_nodes, memory, costs"},
      {with("\"pid\"", "\"pids\""), "a process knows no \"pids\"; it knows: host, pid, cores"},
      {with("\"process\": 0", "\"process\": 0, \"numa_nodes\": 0"),
       "a rank knows no \"numa_nodes\"; it knows: process, host, device, numa_node"},
      {with("\"numa_node\": 1", "\"numa_node\": -1"), "numa_node"},
      {with("\"link\": \"memory\"", "\"link\": \"rope\""), "not 'rope'"},
      {with("\"link\": \"memory\"", "\"link\": \"pcie\""), "no link between its ranks 0 and 1"},
      {with("\"bytes\": 4000000.0", "\"bytes\": 64000000.0"), "ascend"},
      {with("\"links\": []", "\"links\": [{\"a\": 0, \"b\": 4, \"bytes_per_second\": 1}]"),
       "has 4 ranks, and a link between 0 and 4"},
      {with("\"bytes_per_second\": 1170000000.0", "\"bytes_per_second\": 0"), "above 0"},
      {R"({"hosts": [{"name": "h", "count": 100000, "ranks": 100000}]})", "more than 65536 ranks"},
      {R"({"hosts": [{"name": "h", "rank": 4}]})", "knows no \"rank\""},
      {R"({"hosts": [{"name": "h", "costs": {"passes": []}}]})", "at least one"},
      {with("\"trials\": []", "\"trials\": [{\"algorithm\": \"ring\", \"bytes\": 8}]"),
       "a trial needs"},
      {with("\"trials\": []", R"("trials": [{"algorithm": "rope", "bytes": 8, "seconds": 1,
            "simulated_seconds": 1}])"),
       "unknown all-reduce algorithm 'rope'"},
      {with("\"links\": []", "\"links\": [{\"a\": 0, \"b\": 1, \"bytes_per_second\": 1}]"),
       "has \"links\" between devices, and the \"link\" of its ranks is memory"},
      {R"({"hosts": [{"name": "h", "costs": {"port_bytes_per_second": 1e9}}]})",
       "has \"port_bytes_per_second\", and the \"link\" of its ranks is memory"},
      {R"({"hosts": [{"name": "h", "device": "cuda:0"}]})",
       "has the device cuda:0, and the \"link\" of its ranks is memory"},
      {R"({"hosts": [{"name": "h", "ranks": 2, "device": "cuda:0", "costs": {"link": "nvlink",
           "links": [{"a": 0, "b": 1, "bytes_per_second": 5e10},
                     {"a": 1, "b": 0, "bytes_per_second": 5e10}]}}]})",
       "two links between its ranks 0 and 1"},
      {R"({"hosts": [{"name": "h", "cores": 4, "costs": {"cores": 8}}]})",
       "has 4 processors, and 8 \"cores\""},
      {R"({"hosts": [{"name": "h", "costs": {"passes": [{"bytes": 1, "core_bytes_per_second": 2e9,
           "host_bytes_per_second": 1e9}]}}]})",
       "are of all cores together"},
      {R"({"hosts": [{"name": "h"}], "trials": []})", "not of hosts that are described"},
  };
  for (const auto& [text, reason] : cases) {
    try {
      topology_from_json(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  }
}

}  // namespace topology_test
}  // namespace lockstep::collectives
