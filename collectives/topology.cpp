// SPDX-License-Identifier: MIT
#include "collectives/topology.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "collectives/machine.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

using engine::require;
using nlohmann::json;

// A whole number from `least` to a billion; anything else says where it stood.
int number(const json& object, const char* key, int least) {
  const json& value = object.at(key);
  require(value.is_number_integer() && value >= least && value <= 1'000'000'000,
          "\"{}\" must be a whole number from {} on, not {}", key, least, value.dump());
  return value.get<int>();
}

json parse(const std::string& text, const std::string& what) {
  json parsed = json::parse(text, nullptr, false);
  require(!parsed.is_discarded() && parsed.is_object(), "{}: that is no JSON object", what);
  return parsed;
}

// What json throws on a missing key or another type, as one of our errors.
template <class Work>
auto reading(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const json::exception& error) {
    engine::fail(engine::Code::kInvalid, "{}: {}", what, error.what());
  } catch (const engine::Error& error) {
    engine::fail(error.code(), "{}: {}", what, error.what());
  }
}

json about_me(const std::vector<std::string>& devices) {
  const Machine here = machine();
  return {{"hostname", here.hostname}, {"cpu", here.cpu},     {"numa_nodes", here.numa_nodes},
          {"memory", here.memory},     {"cores", here.cores}, {"pid", int(getpid())},
          {"devices", devices}};
}

// Names of hosts stand in errors, so they must tell hosts apart.
void number_equal_names(std::vector<Topology::Host>& hosts) {
  std::map<std::string, int> count, used;
  for (const Topology::Host& host : hosts) ++count[host.name];
  for (Topology::Host& host : hosts) {
    const std::string name = host.name;
    if (count[name] > 1) host.name += "#" + std::to_string(used[name]++);
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

std::string Topology::describe() const {
  const auto some = [](std::size_t count, const char* one, const char* many) {
    return fmt::format("{} {}", count, count == 1 ? one : many);
  };
  std::string text = fmt::format("{} in {} on {}:", some(ranks.size(), "rank", "ranks"),
                                 some(processes.size(), "process", "processes"),
                                 some(hosts.size(), "host", "hosts"));
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    int cores = 0;
    for (const Process& process : processes) {
      if (process.host == int(h)) cores = std::max(cores, process.cores);
    }
    text += fmt::format("{} {} ({}, {})", h == 0 ? "" : ",", hosts[h].name,
                        some(std::size_t(cores), "processor", "processors"),
                        some(std::size_t(hosts[h].numa_nodes), "NUMA node", "NUMA nodes"));
  }
  return text;
}

Topology discover(Bootstrap& bootstrap, const std::vector<std::string>& devices) {
  require(!devices.empty(), "a process needs at least one replica");
  const std::vector<int> host = bootstrap.hosts();
  const std::vector<std::string> texts = bootstrap.all_gather(
      about_me(devices).dump(-1, ' ', false, json::error_handler_t::replace), "who is where");
  engine::invariant(texts.size() == host.size(),
                    "as many processes told of themselves as have a host");
  Topology topology;
  for (std::size_t process = 0; process < texts.size(); ++process) {
    const std::string what = "what process " + std::to_string(process) + " tells of itself";
    reading(what, [&] {
      const json they = parse(texts[process], "its text");
      // Hosts are numbered as they first appear: so their first process describes them.
      if (std::size_t(host[process]) == topology.hosts.size()) {
        topology.hosts.push_back({.name = they.at("hostname").get<std::string>(),
                                  .cpu = they.at("cpu").get<std::string>(),
                                  .numa_nodes = number(they, "numa_nodes", 1),
                                  .memory = they.at("memory").get<std::size_t>()});
      }
      topology.processes.push_back({.host = host[process],
                                    .pid = number(they, "pid", 0),
                                    .cores = number(they, "cores", 1),
                                    .first_rank = int(topology.ranks.size()),
                                    .replicas = int(they.at("devices").size())});
      for (const json& device : they.at("devices")) {
        topology.ranks.push_back(
            {.process = int(process), .host = host[process], .device = device.get<std::string>()});
      }
    });
  }
  number_equal_names(topology.hosts);
  return topology;
}

std::string to_json(const Topology& topology) {
  json hosts = json::array(), processes = json::array(), ranks = json::array();
  for (const auto& h : topology.hosts) {
    hosts.push_back(
        {{"name", h.name}, {"cpu", h.cpu}, {"numa_nodes", h.numa_nodes}, {"memory", h.memory}});
  }
  for (const auto& p : topology.processes) {
    processes.push_back({{"host", p.host}, {"pid", p.pid}, {"cores", p.cores}});
  }
  for (const auto& r : topology.ranks) {
    ranks.push_back({{"process", r.process}, {"host", r.host}, {"device", r.device}});
  }
  const json all = {{"hosts", hosts}, {"processes", processes}, {"ranks", ranks}};
  return all.dump(2, ' ', false, json::error_handler_t::replace);
}

Topology topology_from_json(const std::string& text) {
  return reading("topology", [&] {
    const json all = parse(text, "the text");
    Topology topology;
    for (const json& h : all.at("hosts")) {
      topology.hosts.push_back({.name = h.at("name").get<std::string>(),
                                .cpu = h.value("cpu", std::string()),
                                .numa_nodes = number(h, "numa_nodes", 1),
                                .memory = h.value("memory", std::size_t{0})});
    }
    for (const json& p : all.at("processes")) {
      topology.processes.push_back({.host = number(p, "host", 0),
                                    .pid = number(p, "pid", 0),
                                    .cores = number(p, "cores", 1),
                                    .replicas = 0});
    }
    int before = 0;
    for (const json& r : all.at("ranks")) {
      const Topology::Rank rank{.process = number(r, "process", 0),
                                .host = number(r, "host", 0),
                                .device = r.at("device").get<std::string>()};
      require(rank.process < int(topology.processes.size()),
              "rank {} is in process {}, there are {}", topology.ranks.size(), rank.process,
              topology.processes.size());
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
    return topology;
  });
}

}  // namespace lockstep::collectives
