// SPDX-License-Identifier: MIT
// Reads and writes topologies as JSON, including the short form in which people describe a cluster.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "collectives/algorithms/registry.h"
#include "collectives/topology/binding.h"
#include "collectives/topology/json_reading.h"
#include "collectives/topology/processor_map.h"
#include "collectives/topology/topology.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

using engine::require;
using json_reading::list;
using json_reading::number;
using json_reading::only;
using json_reading::quantity;
using json_reading::truth;
using nlohmann::json;

constexpr int kMostRanks = 65536, kMostRanksOfAHost = 1024;
constexpr double kMostStreamBytes = 1e18;

// Returns a text that messages quote. Throws Error(kInvalid) if it is too long for that.
std::string text(const json& object, const char* key,
                 const std::optional<std::string>& otherwise = {}) {
  std::string found =
      otherwise ? json_reading::text(object, key, *otherwise) : json_reading::text(object, key);
  require(found.size() <= engine::kMostQuoted,
          "\"{}\" may have at most {} bytes, and has {}: \"{}\"", key, engine::kMostQuoted,
          found.size(), engine::brief(found));
  return found;
}

json json_of(const HostCosts& costs) {
  json passes = json::array(), links = json::array();
  for (const MemoryPass& pass : costs.passes) {
    passes.push_back({{"bytes", pass.bytes},
                      {"core_bytes_per_second", pass.core},
                      {"host_bytes_per_second", pass.host},
                      {"fetch_bytes_per_second", pass.fetch}});
  }
  for (const PeerLink& link : costs.links)
    links.push_back({{"a", link.a}, {"b", link.b}, {"bytes_per_second", link.bandwidth}});
  return {{"link", name(costs.link)},
          {"cores", costs.cores},
          {"signal_seconds", costs.signal},
          {"step_seconds", costs.step},
          {"block_seconds", costs.block},
          {"reduction_seconds", costs.reduction},
          {"call_seconds", costs.call},
          {"passes", passes},
          {"stream_touched_bytes", costs.stream_touched},
          {"stream_result_bytes", costs.stream_results},
          {"read_ahead", costs.read_ahead},
          {"port_bytes_per_second", costs.port},
          {"links", links}};
}

json json_of(const WireCosts& wire) {
  return {{"latency_seconds", wire.latency},
          {"bytes_per_second", wire.bandwidth},
          {"processor_seconds_per_byte", wire.processor},
          {"message_seconds", wire.message},
          {"burst_bytes", wire.burst},
          {"call_seconds", wire.call}};
}

json json_of(const std::vector<Trial>& trials) {
  json all = json::array();
  for (const Trial& trial : trials)
    all.push_back({{"algorithm", trial.algorithm},
                   {"bytes", trial.bytes},
                   {"simulated_seconds", trial.simulated},
                   {"seconds", trial.seconds}});
  return all;
}

LinkClass link_class(const std::string& word) {
  for (const LinkClass link : {LinkClass::kMemory, LinkClass::kNvlink, LinkClass::kPcie})
    if (word == name(link)) return link;
  engine::fail(engine::Code::kInvalid, "\"link\" is memory, nvlink or pcie, not '{}'",
               engine::brief(word));
}

HostCosts host_costs(const json& from) {
  only(from, "\"costs\" of a host",
       {"link", "cores", "signal_seconds", "step_seconds", "block_seconds", "reduction_seconds",
        "call_seconds", "passes", "stream_touched_bytes", "stream_result_bytes", "read_ahead",
        "port_bytes_per_second", "links"});
  HostCosts costs;
  costs.link = link_class(text(from, "link", std::string(name(costs.link))));
  costs.cores = number(from, "cores", 0, costs.cores);
  costs.signal = quantity(from, "signal_seconds", costs.signal, false);
  costs.step = quantity(from, "step_seconds", costs.step, false);
  costs.block = quantity(from, "block_seconds", costs.block, false);
  costs.reduction = quantity(from, "reduction_seconds", costs.reduction, false);
  costs.call = quantity(from, "call_seconds", costs.call, false);
  costs.stream_touched = quantity(from, "stream_touched_bytes", costs.stream_touched, false);
  costs.stream_results = quantity(from, "stream_result_bytes", costs.stream_results, false);
  costs.read_ahead = truth(from, "read_ahead", costs.read_ahead);
  for (const double bytes : {costs.stream_touched, costs.stream_results})
    require(bytes <= kMostStreamBytes, "results cannot be stored past the caches from {} bytes on",
            bytes);
  costs.port = quantity(from, "port_bytes_per_second", costs.port, false);
  if (from.contains("passes")) costs.passes.clear();
  for (const json& p : list(from, "passes", false)) {
    only(p, "a pass over memory",
         {"bytes", "core_bytes_per_second", "host_bytes_per_second", "fetch_bytes_per_second"});
    const double core = quantity(p, "core_bytes_per_second", 0, true);
    require(core > 0, "a pass over memory needs \"core_bytes_per_second\"");
    costs.passes.push_back({quantity(p, "bytes", 0, false), core,
                            quantity(p, "host_bytes_per_second", core, true),
                            quantity(p, "fetch_bytes_per_second", 0, false)});
    require(costs.passes.size() == 1 ||
                costs.passes.back().bytes > costs.passes[costs.passes.size() - 2].bytes,
            "\"passes\" must ascend by \"bytes\"");
  }
  require(!costs.passes.empty(), "\"passes\" must have at least one entry");
  for (const json& l : list(from, "links", false)) {
    only(l, "a link", {"a", "b", "bytes_per_second"});
    const double bandwidth = quantity(l, "bytes_per_second", 0, true);
    require(bandwidth > 0, "a link needs \"bytes_per_second\"");
    costs.links.push_back({number(l, "a", 0), number(l, "b", 0), bandwidth});
  }
  return costs;
}

WireCosts wire_costs(const json& from) {
  only(from, "\"wire\"",
       {"latency_seconds", "bytes_per_second", "processor_seconds_per_byte", "message_seconds",
        "burst_bytes", "call_seconds"});
  WireCosts wire;
  wire.latency = quantity(from, "latency_seconds", wire.latency, false);
  wire.bandwidth = quantity(from, "bytes_per_second", wire.bandwidth, true);
  wire.processor = quantity(from, "processor_seconds_per_byte", wire.processor, false);
  wire.message = quantity(from, "message_seconds", wire.message, false);
  wire.burst = quantity(from, "burst_bytes", wire.burst, false);
  wire.call = quantity(from, "call_seconds", wire.call, false);
  return wire;
}

std::vector<Trial> trials_of(const json& all) {
  std::vector<Trial> trials;
  for (const json& t : list(all, "trials", false)) {
    only(t, "a trial", {"algorithm", "bytes", "simulated_seconds", "seconds"});
    trials.push_back({text(t, "algorithm"), quantity(t, "bytes", 0, true),
                      quantity(t, "simulated_seconds", 0, true), quantity(t, "seconds", 0, true)});
    const Trial& trial = trials.back();
    find_algorithm(trial.algorithm);
    require(trial.bytes > 0 && trial.simulated > 0 && trial.seconds > 0,
            "a trial needs \"bytes\", \"simulated_seconds\" and \"seconds\"");
  }
  return trials;
}

Topology::Host host_of(const json& h) {
  const json memory = h.value("memory", json(0u));
  require(memory.is_number_unsigned(), "\"memory\" must be a whole number from 0 on, not {}",
          json_reading::quoted(memory));
  return {.name = text(h, "name"),
          .cpu = text(h, "cpu", ""),
          .numa_nodes = number(h, "numa_nodes", 1, 1),
          .memory = memory.get<std::size_t>(),
          .costs = h.contains("costs") ? host_costs(h.at("costs")) : HostCosts()};
}

// Holds what an entry describes with "cores", "numa_nodes" and "memory", or with "machine".
struct DescribedHost {
  Topology::Host host;
  int cores = 1;
  std::vector<std::optional<int>> nodes;  // one entry per rank
};

DescribedHost described_host(const json& h, int ranks) {
  DescribedHost described{host_of(h), number(h, "cores", 1, ranks),
                          std::vector<std::optional<int>>(std::size_t(ranks))};
  if (!h.contains("machine")) return described;
  for (const char* const other : {"cores", "numa_nodes", "memory"})
    require(!h.contains(other), "\"machine\" of host {} says what \"{}\" says: one of them",
            described.host.name, other);
  const MachineMap map = hwloc::described_machine(json_reading::text(h, "machine"));
  const std::vector<int> processors = numbers(map);
  described.host.numa_nodes = int(map.nodes.size());
  for (const NumaNode& node : map.nodes) described.host.memory += node.memory;
  described.cores = int(processors.size());
  const std::vector<HostProcess> processes(std::size_t(ranks), HostProcess{processors, 1});
  const auto bindings = plan_bindings(processes, map, 1, described.cores);
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    const std::vector<int>& bound = bindings[rank].processors[0];
    described.nodes[rank] = node_of(map, bound.empty() ? processors : bound);
  }
  return described;
}

// Throws Error(kInvalid) on values that measurements may have but a person would not write: in the
// short form they are slips.
void check_description(const json& h, const DescribedHost& described) {
  const std::string& name = described.host.name;
  const HostCosts& costs = described.host.costs;
  const std::string device = text(h, "device", "cpu:0");
  require(device.starts_with("cpu") || device.starts_with("reference") ||
              costs.link != LinkClass::kMemory,
          "host {} has the device {}, and the \"link\" of its ranks is memory: say nvlink or pcie "
          "in its \"costs\"",
          name, device);
  const bool twice = h.contains("cores") || h.contains("machine");
  require(!twice || costs.cores == 0 || costs.cores == described.cores,
          "host {} has {} processors, and {} \"cores\" in its \"costs\": say them once", name,
          described.cores, costs.cores);
  for (const MemoryPass& pass : costs.passes)
    require(pass.host >= pass.core,
            "host {} reads and writes {:g} bytes a second, and one of its cores {:g}: "
            "\"host_bytes_per_second\" are of all cores together",
            name, pass.host, pass.core);
}

// Reads the short form: `count` equal hosts, with a process for each rank.
void read_short(const json& all, Topology& topology) {
  for (const json& h : list(all, "hosts", true)) {
    only(h, "a host",
         {"name", "cpu", "numa_nodes", "memory", "costs", "count", "ranks", "cores", "device",
          "machine"});
    const int count = number(h, "count", 1, 1), ranks = number(h, "ranks", 1, 1);
    require(std::int64_t(count) * ranks + std::int64_t(topology.ranks.size()) <= kMostRanks,
            "more than {} ranks are described", kMostRanks);
    require(ranks <= kMostRanksOfAHost, "a host has at most {} ranks, not {}", kMostRanksOfAHost,
            ranks);
    const DescribedHost described = described_host(h, ranks);
    check_description(h, described);
    for (int i = 0; i < count; ++i) {
      const int host = int(topology.hosts.size());
      topology.hosts.push_back(described.host);
      if (count > 1) topology.hosts.back().name += std::to_string(i);
      for (int rank = 0; rank < ranks; ++rank) {
        topology.ranks.push_back({.process = int(topology.processes.size()),
                                  .host = host,
                                  .device = text(h, "device", "cpu:0"),
                                  .numa_node = described.nodes[std::size_t(rank)]});
        topology.processes.push_back({.host = host,
                                      .pid = 0,
                                      .cores = described.cores,
                                      .first_rank = int(topology.ranks.size()) - 1,
                                      .replicas = 1});
      }
    }
  }
}

void read_long(const json& all, Topology& topology) {
  for (const json& h : list(all, "hosts", true)) {
    only(h, "a host", {"name", "cpu", "numa_nodes", "memory", "costs"});
    topology.hosts.push_back(host_of(h));
  }
  for (const json& p : list(all, "processes", true)) {
    only(p, "a process", {"host", "pid", "cores"});
    topology.processes.push_back({.host = number(p, "host", 0),
                                  .pid = number(p, "pid", 0),
                                  .cores = number(p, "cores", 1),
                                  .replicas = 0});
  }
  int before = 0;
  for (const json& r : list(all, "ranks", true)) {
    only(r, "a rank", {"process", "host", "device", "numa_node"});
    Topology::Rank rank{.process = number(r, "process", 0),
                        .host = number(r, "host", 0),
                        .device = text(r, "device")};
    if (r.contains("numa_node")) rank.numa_node = number(r, "numa_node", 0);
    require(rank.process < int(topology.processes.size()), "rank {} is in process {}, there are {}",
            topology.ranks.size(), rank.process, topology.processes.size());
    require(rank.host == topology.processes[std::size_t(rank.process)].host,
            "rank {} is on host {}, its process {} on another", topology.ranks.size(), rank.host,
            rank.process);
    require(rank.process >= before,
            "ranks must be numbered process by process: rank {} is in process {}",
            topology.ranks.size(), rank.process);
    Topology::Process& process = topology.processes[std::size_t(rank.process)];
    if (process.replicas++ == 0) process.first_rank = int(topology.ranks.size());
    before = rank.process;
    topology.ranks.push_back(rank);
  }
  for (std::size_t p = 0; p < topology.processes.size(); ++p) {
    const int host = topology.processes[p].host;
    require(host < int(topology.hosts.size()), "process {} is on host {}, there are {}", p, host,
            topology.hosts.size());
  }
}

// Throws Error(kInvalid) if described hosts share a name. Names of discovered computers may be
// equal.
void check_names(const Topology& topology) {
  std::set<std::string> names;
  for (const Topology::Host& host : topology.hosts)
    require(names.insert(host.name).second, "two hosts have the name {}", host.name);
}

// Throws Error(kInvalid) unless every two devices of a host can reach each other and every link has
// two ends.
void check_links(const Topology& topology) {
  std::vector<int> ranks(topology.hosts.size());
  for (const Topology::Rank& rank : topology.ranks) ++ranks[std::size_t(rank.host)];
  for (std::size_t h = 0; h < topology.hosts.size(); ++h) {
    const HostCosts& costs = topology.hosts[h].costs;
    const int n = ranks[h];
    std::set<std::pair<int, int>> pairs;
    for (const PeerLink& link : costs.links) {
      require(link.a < n && link.b < n && link.a != link.b,
              "host {} has {} ranks, and a link between {} and {}", topology.hosts[h].name, n,
              link.a, link.b);
      require(pairs.insert(std::minmax({link.a, link.b})).second,
              "host {} has two links between its ranks {} and {}: write one, with the bytes a "
              "second of both",
              topology.hosts[h].name, std::min(link.a, link.b), std::max(link.a, link.b));
    }
    require(costs.link != LinkClass::kMemory || (costs.links.empty() && costs.port == 0),
            "host {} has {}, and the \"link\" of its ranks is memory: say nvlink or pcie",
            topology.hosts[h].name,
            costs.links.empty() ? "\"port_bytes_per_second\"" : "\"links\" between devices");
    if (costs.link == LinkClass::kMemory || costs.port > 0) continue;
    for (int a = 0; a < n; ++a) {
      for (int b = a + 1; b < n; ++b) {
        const bool linked = std::any_of(
            costs.links.begin(), costs.links.end(),
            [&](const PeerLink& l) { return (l.a == a && l.b == b) || (l.a == b && l.b == a); });
        require(linked, "host {} has no link between its ranks {} and {}: give it, or \"{}\"",
                topology.hosts[h].name, a, b, "port_bytes_per_second");
      }
    }
  }
}

}  // namespace

std::string to_json(const Topology& topology) {
  json hosts = json::array(), processes = json::array(), ranks = json::array();
  for (const auto& h : topology.hosts) {
    hosts.push_back({{"name", h.name},
                     {"cpu", h.cpu},
                     {"numa_nodes", h.numa_nodes},
                     {"memory", h.memory},
                     {"costs", json_of(h.costs)}});
  }
  for (const auto& p : topology.processes) {
    processes.push_back({{"host", p.host}, {"pid", p.pid}, {"cores", p.cores}});
  }
  for (const auto& r : topology.ranks) {
    json& rank =
        ranks.emplace_back(json{{"process", r.process}, {"host", r.host}, {"device", r.device}});
    if (r.numa_node) rank["numa_node"] = *r.numa_node;
  }
  const json all = {{"hosts", hosts},
                    {"processes", processes},
                    {"ranks", ranks},
                    {"wire", json_of(topology.wire)},
                    {"trials", json_of(topology.trials)},
                    {"costs_are", topology.costs_are}};
  return all.dump(2, ' ', false, json::error_handler_t::replace);
}

Topology topology_from_json(const std::string& written) {
  return json_reading::reading("topology", [&] {
    const json all = json_reading::parse(written, "the text");
    only(all, "a topology", {"hosts", "processes", "ranks", "wire", "trials", "costs_are"});
    Topology topology;
    if (all.contains("wire")) topology.wire = wire_costs(all.at("wire"));
    topology.costs_are = text(all, "costs_are", "described");
    if (all.contains("processes") || all.contains("ranks")) {
      read_long(all, topology);
      topology.trials = trials_of(all);
    } else {
      require(!all.contains("trials"),
              "\"trials\" are of ranks that were there: not of hosts that are described");
      read_short(all, topology);
      check_names(topology);
    }
    check_links(topology);
    return topology;
  });
}

}  // namespace lockstep::collectives
