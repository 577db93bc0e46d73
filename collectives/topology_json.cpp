// SPDX-License-Identifier: MIT
// A topology as JSON: what to_json writes, and the short form in which people describe a cluster.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/json_reading.h"
#include "collectives/topology.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

using engine::require;
using json_reading::number;
using json_reading::only;
using json_reading::quantity;
using nlohmann::json;

constexpr int kMostRanks = 65536, kMostRanksOfAHost = 1024;

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

LinkClass link_class(const std::string& word) {
  for (const LinkClass link : {LinkClass::kMemory, LinkClass::kNvlink, LinkClass::kPcie})
    if (word == name(link)) return link;
  engine::fail(engine::Code::kInvalid, "\"link\" is memory, nvlink or pcie, not '{}'", word);
}

HostCosts host_costs(const json& from) {
  only(from, "\"costs\" of a host",
       {"link", "cores", "signal_seconds", "step_seconds", "block_seconds", "reduction_seconds",
        "call_seconds", "passes", "port_bytes_per_second", "links"});
  HostCosts costs;
  costs.link = link_class(from.value("link", std::string(name(costs.link))));
  costs.cores = number(from, "cores", 0, costs.cores);
  costs.signal = quantity(from, "signal_seconds", costs.signal, false);
  costs.step = quantity(from, "step_seconds", costs.step, false);
  costs.block = quantity(from, "block_seconds", costs.block, false);
  costs.reduction = quantity(from, "reduction_seconds", costs.reduction, false);
  costs.call = quantity(from, "call_seconds", costs.call, false);
  costs.port = quantity(from, "port_bytes_per_second", costs.port, false);
  if (from.contains("passes")) costs.passes.clear();
  for (const json& p : from.value("passes", json::array())) {
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
  for (const json& l : from.value("links", json::array())) {
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

Topology::Host host_of(const json& h) {
  const json memory = h.value("memory", json(0u));
  require(memory.is_number_unsigned(), "\"memory\" must be a whole number from 0 on, not {}",
          memory.dump());
  return {.name = h.at("name").get<std::string>(),
          .cpu = h.value("cpu", std::string()),
          .numa_nodes = number(h, "numa_nodes", 1, 1),
          .memory = memory.get<std::size_t>(),
          .costs = h.contains("costs") ? host_costs(h.at("costs")) : HostCosts()};
}

// The short form: equal hosts by the count, a process for each rank.
void read_short(const json& all, Topology& topology) {
  for (const json& h : all.at("hosts")) {
    only(h, "a host",
         {"name", "cpu", "numa_nodes", "memory", "costs", "count", "ranks", "cores", "device"});
    const int count = number(h, "count", 1, 1), ranks = number(h, "ranks", 1, 1);
    require(std::int64_t(count) * ranks + std::int64_t(topology.ranks.size()) <= kMostRanks,
            "more than {} ranks are described", kMostRanks);
    require(ranks <= kMostRanksOfAHost, "a host has at most {} ranks, not {}", kMostRanksOfAHost,
            ranks);
    for (int i = 0; i < count; ++i) {
      const int host = int(topology.hosts.size());
      topology.hosts.push_back(host_of(h));
      if (count > 1) topology.hosts.back().name += std::to_string(i);
      for (int rank = 0; rank < ranks; ++rank) {
        topology.ranks.push_back({.process = int(topology.processes.size()),
                                  .host = host,
                                  .device = h.value("device", std::string("cpu:0"))});
        topology.processes.push_back({.host = host,
                                      .pid = 0,
                                      .cores = number(h, "cores", 1, 1),
                                      .first_rank = int(topology.ranks.size()) - 1,
                                      .replicas = 1});
      }
    }
  }
}

void read_long(const json& all, Topology& topology) {
  for (const json& h : all.at("hosts")) {
    only(h, "a host", {"name", "cpu", "numa_nodes", "memory", "costs"});
    topology.hosts.push_back(host_of(h));
  }
  for (const json& p : all.at("processes")) {
    only(p, "a process", {"host", "pid", "cores"});
    topology.processes.push_back({.host = number(p, "host", 0),
                                  .pid = number(p, "pid", 0),
                                  .cores = number(p, "cores", 1),
                                  .replicas = 0});
  }
  int before = 0;
  for (const json& r : all.at("ranks")) {
    only(r, "a rank", {"process", "host", "device"});
    const Topology::Rank rank{.process = number(r, "process", 0),
                              .host = number(r, "host", 0),
                              .device = r.at("device").get<std::string>()};
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

// Every two devices of a host reach each other, and every link has its ends.
void check_links(const Topology& topology) {
  std::vector<int> ranks(topology.hosts.size());
  for (const Topology::Rank& rank : topology.ranks) ++ranks[std::size_t(rank.host)];
  for (std::size_t h = 0; h < topology.hosts.size(); ++h) {
    const HostCosts& costs = topology.hosts[h].costs;
    const int n = ranks[h];
    for (const PeerLink& link : costs.links) {
      require(link.a < n && link.b < n && link.a != link.b,
              "host {} has {} ranks, and a link between {} and {}", topology.hosts[h].name, n,
              link.a, link.b);
    }
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
    ranks.push_back({{"process", r.process}, {"host", r.host}, {"device", r.device}});
  }
  const json all = {{"hosts", hosts},
                    {"processes", processes},
                    {"ranks", ranks},
                    {"wire", json_of(topology.wire)},
                    {"costs_are", topology.costs_are}};
  return all.dump(2, ' ', false, json::error_handler_t::replace);
}

Topology topology_from_json(const std::string& text) {
  return json_reading::reading("topology", [&] {
    const json all = json_reading::parse(text, "the text");
    only(all, "a topology", {"hosts", "processes", "ranks", "wire", "costs_are"});
    Topology topology;
    if (all.contains("wire")) topology.wire = wire_costs(all.at("wire"));
    topology.costs_are = all.value("costs_are", std::string("described"));
    if (all.contains("processes") || all.contains("ranks")) {
      read_long(all, topology);
    } else {
      read_short(all, topology);
    }
    check_links(topology);
    return topology;
  });
}

}  // namespace lockstep::collectives
