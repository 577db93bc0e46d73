// SPDX-License-Identifier: MIT
#include "collectives/topology/topology.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "collectives/topology/binding.h"
#include "collectives/topology/json_reading.h"
#include "collectives/topology/machine.h"
#include "collectives/topology/processor_map.h"
#include "engine/base/error.h"
#include "engine/base/quantity.h"

namespace lockstep::collectives {
namespace {

using engine::require;
using json_reading::number;
using json_reading::parse;
using json_reading::reading;
using nlohmann::json;

json about_me(const std::vector<std::string>& devices) {
  const Machine here = machine();
  json places = json::array();
  for (const PlacedProcessor& one : processor_map().processors)
    places.insert(places.end(), {one.number, one.core, one.cache, one.node});
  return {{"hostname", here.hostname}, {"cpu", here.cpu},     {"processors", places},
          {"memory", here.memory},     {"cores", here.cores}, {"pid", int(getpid())},
          {"devices", devices}};
}

MachineMap map_from(const json& places) {
  const auto numbers = places.get<std::vector<int>>();
  require(numbers.size() % 4 == 0, "four numbers tell where a processor is");
  MachineMap map;
  for (std::size_t i = 0; i < numbers.size(); i += 4)
    map.processors.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  return part_of(map, collectives::numbers(map));  // adds the nodes
}

// Collects what processes report about the processors of their machine.
struct HostProcessors {
  std::vector<HostProcess> processes = {};
  std::vector<int> first_ranks = {};
  MachineMap map = {};
  int cores = 1;  // limit of a process
};

// Returns whether the process has replicas on GPUs. Those of two processes cannot access each
// other's memory.
bool is_host_of_its_own(const json& process) {
  return std::ranges::any_of(process.at("devices"), [](const json& device) {
    return device.get<std::string>().starts_with("cuda:");
  });
}

// Sets each rank's NUMA node: that of the processors to which a rank of one thread would be bound,
// or of all that it may use. `machines`: one entry per machine, even if its processes are hosts of
// their own.
void place_ranks(Topology& topology, const std::vector<HostProcessors>& machines) {
  for (const HostProcessors& host : machines) {
    for (const int rank : host.first_ranks)
      topology.hosts[std::size_t(topology.ranks[std::size_t(rank)].host)].numa_nodes =
          std::max(1, int(host.map.nodes.size()));
    const auto bindings = plan_bindings(host.processes, host.map, 1, host.cores);
    for (std::size_t p = 0; p < bindings.size(); ++p)
      for (std::size_t i = 0; i < bindings[p].processors.size(); ++i) {
        const std::vector<int>& bound = bindings[p].processors[i];
        topology.ranks[std::size_t(host.first_ranks[p]) + i].numa_node =
            node_of(host.map, bound.empty() ? host.processes[p].processors : bound);
      }
  }
}

constexpr char kNumber = '#';  // occurs in no host name

// Numbers equal names. Errors identify hosts by name, so names must differ.
void number_equal_names(std::vector<Topology::Host>& hosts) {
  std::map<std::string, int> count, used;
  for (const Topology::Host& host : hosts) ++count[host.name];
  for (Topology::Host& host : hosts) {
    const std::string name = host.name;
    if (count[name] > 1) host.name += kNumber + std::to_string(used[name]++);
  }
}

template <class Of>
std::vector<int> ranks_where(const Topology& topology, const Of& of) {
  std::vector<int> found;
  for (std::size_t rank = 0; rank < topology.ranks.size(); ++rank) {
    if (of(topology.ranks[rank])) found.push_back(int(rank));
  }
  return found;
}

}  // namespace

std::vector<int> Topology::host_of_rank() const {
  std::vector<int> of;
  for (const Rank& rank : ranks) of.push_back(rank.host);
  return of;
}

std::vector<int> Topology::ranks_of_process(int process) const {
  return ranks_where(*this, [&](const Rank& rank) { return rank.process == process; });
}

std::vector<int> Topology::ranks_of_host(int host) const {
  return ranks_where(*this, [&](const Rank& rank) { return rank.host == host; });
}

int Topology::cores_of_host(int host) const {
  int cores = hosts[std::size_t(host)].costs.cores;
  if (cores > 0) return cores;
  for (const Process& process : processes) {
    if (process.host == host) cores = std::max(cores, process.cores);
  }
  return std::max(cores, 1);
}

Topology Topology::first_hosts(int count) const {
  Topology few = *this;
  few.hosts.resize(std::size_t(count));
  if (few.hosts.size() < hosts.size()) few.trials.clear();
  few.processes.clear(), few.ranks.clear();
  for (std::size_t p = 0; p < processes.size(); ++p) {
    if (processes[p].host >= count) continue;
    few.processes.push_back(processes[p]);
    few.processes.back().first_rank = int(few.ranks.size());
    for (int replica = 0; replica < processes[p].replicas; ++replica) {
      few.ranks.push_back(ranks[std::size_t(processes[p].first_rank + replica)]);
      few.ranks.back().process = int(few.processes.size()) - 1;
    }
  }
  return few;
}

// Keeps the first hosts, since hosts are numbered in the order of their first ranks.
Topology Topology::first_ranks(int count) const {
  Topology few = *this;
  few.processes.clear();
  few.ranks.resize(std::min(std::size_t(count), ranks.size()));
  if (few.ranks.size() < ranks.size()) few.trials.clear();
  int most_host = 0;
  for (const Process& process : processes) {
    const int left = int(few.ranks.size()) - process.first_rank;
    if (left <= 0) break;
    few.processes.push_back(process);
    few.processes.back().replicas = std::min(left, process.replicas);
    most_host = std::max(most_host, process.host);
  }
  few.hosts.resize(std::size_t(most_host) + 1);
  for (std::size_t h = 0; h < few.hosts.size(); ++h) {
    const int here = int(few.ranks_of_host(int(h)).size());
    std::erase_if(few.hosts[h].costs.links,
                  [&](const PeerLink& link) { return link.a >= here || link.b >= here; });
  }
  return few;
}

std::string Topology::describe() const {
  std::string text = fmt::format("{} in {} on {}:", engine::count_text(ranks.size(), "rank"),
                                 engine::count_text(processes.size(), "process", "processes"),
                                 engine::count_text(hosts.size(), "host"));
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const int cores = cores_of_host(int(h));
    text += fmt::format("{} {} ({}, {})", h == 0 ? "" : ",", hosts[h].name,
                        engine::count_text(std::uint64_t(cores), "processor"),
                        engine::count_text(std::uint64_t(hosts[h].numa_nodes), "NUMA node"));
  }
  return text;
}

Topology discover(Bootstrap& bootstrap, const std::vector<std::string>& devices) {
  require(!devices.empty(), "a process needs at least one replica");
  const std::vector<int> machine = bootstrap.hosts();
  const std::vector<std::string> texts = bootstrap.all_gather(
      about_me(devices).dump(-1, ' ', false, json::error_handler_t::replace), "who is where");
  engine::invariant(texts.size() == machine.size(),
                    "as many processes told of themselves as have a host");
  Topology topology;
  std::vector<HostProcessors> processors;               // one entry per machine
  std::map<std::pair<int, int>, int> numbers_of_hosts;  // by machine and process, or -1 for all
  for (std::size_t process = 0; process < texts.size(); ++process) {
    const std::string what = "what process " + std::to_string(process) + " tells of itself";
    reading(what, [&] {
      const json they = parse(texts[process], "its text");
      // Hosts are numbered as they first appear, so their first process describes them.
      const int of_machine = is_host_of_its_own(they) ? int(process) : -1;
      const auto [number_of_host, fresh] =
          numbers_of_hosts.try_emplace({machine[process], of_machine}, int(topology.hosts.size()));
      const int host = number_of_host->second;
      if (fresh) {
        topology.hosts.push_back({.name = they.at("hostname").get<std::string>(),
                                  .cpu = they.at("cpu").get<std::string>(),
                                  .memory = they.at("memory").get<std::size_t>()});
      }
      if (std::size_t(machine[process]) == processors.size()) processors.emplace_back();
      topology.processes.push_back({.host = host,
                                    .pid = number(they, "pid", 0),
                                    .cores = number(they, "cores", 1),
                                    .first_rank = int(topology.ranks.size()),
                                    .replicas = int(they.at("devices").size())});
      HostProcessors& here = processors[std::size_t(machine[process])];
      const MachineMap map = map_from(they.at("processors"));
      here.processes.push_back({numbers(map), topology.processes.back().replicas});
      here.first_ranks.push_back(topology.processes.back().first_rank);
      here.map = together(here.map, map);
      here.cores = std::max(here.cores, topology.processes.back().cores);
      for (const json& device : they.at("devices")) {
        topology.ranks.push_back(
            {.process = int(process), .host = host, .device = device.get<std::string>()});
      }
    });
  }
  number_equal_names(topology.hosts);
  place_ranks(topology, processors);
  return topology;
}

Topology joined(Topology topology, const std::vector<int>& with) {
  engine::invariant(with.size() == topology.processes.size(), "each process is of some host");
  const std::vector<Topology::Host> before = std::move(topology.hosts);
  topology.hosts.clear();
  for (std::size_t process = 0; process < with.size(); ++process) {
    Topology::Process& one = topology.processes[process];
    const int first = with[process];
    engine::invariant(first <= int(process), "a process is of the host of an earlier one");
    const bool alone = first == int(process);
    if (alone) {
      topology.hosts.push_back(before[std::size_t(one.host)]);
      std::string& name = topology.hosts.back().name;
      name.resize(std::min(name.size(), name.find(kNumber)));
      one.host = int(topology.hosts.size()) - 1;
    } else {
      one.host = topology.processes[std::size_t(first)].host;
    }
    for (const int rank : topology.ranks_of_process(int(process)))
      topology.ranks[std::size_t(rank)].host = one.host;
  }
  number_equal_names(topology.hosts);
  return topology;
}

}  // namespace lockstep::collectives
