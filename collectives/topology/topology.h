// SPDX-License-Identifier: MIT
// Who is where: hosts, processes on them, ranks (replicas) in these, each with its device. A plain
// value, the same on all processes. Ranks are numbered process by process: process 0's replicas
// first. With what each host and the wire between them cost, where that was measured or said; else
// the defaults of link_costs.h. Read and written as JSON. Any thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/topology/link_costs.h"
#include "collectives/topology/trial.h"

namespace lockstep::collectives {

struct Topology {
  struct Host {
    std::string name;  // "h2"; a name that several hosts carry is numbered: "h2#1"
    std::string cpu = {};
    int numa_nodes = 1;
    std::size_t memory = 0;  // bytes that a process there may use
    HostCosts costs = {};
    bool operator==(const Host&) const = default;
  };
  struct Process {
    int host = 0, pid = 0;
    int cores = 1;  // processors that may run it
    int first_rank = 0, replicas = 1;
    bool operator==(const Process&) const = default;
  };
  struct Rank {
    int process = 0, host = 0;
    std::string device = {};  // "cpu:0", as its device calls itself
    // As its host's system calls it: the one that all processors belong to on which it runs with
    // one thread (binding.h). None where they are of several.
    std::optional<int> numa_node = {};
    bool operator==(const Rank&) const = default;
  };
  std::vector<Host> hosts;
  std::vector<Process> processes;
  std::vector<Rank> ranks;
  WireCosts wire = {};
  std::vector<Trial> trials = {};  // of these ranks
  // Where the costs are from: "assumed" (the defaults), "measured", "described" (a file by hand).
  std::string costs_are = "assumed";

  std::vector<int> host_of_rank() const;
  std::vector<int> ranks_of_process(int process) const;  // ascending, one behind the other
  std::vector<int> ranks_of_host(int host) const;        // ascending
  int cores_of_host(int host) const;                     // that its ranks share
  std::string name_of_host(int rank) const {
    return hosts[std::size_t(ranks[std::size_t(rank)].host)].name;
  }
  Topology first_hosts(int count) const;  // a smaller cluster: these and their ranks
  Topology first_ranks(int count) const;  // likewise, by ranks: at least one
  // For people: "4 ranks in 2 processes on 1 host: vm (2 processors, 1 NUMA node)".
  std::string describe() const;
  bool operator==(const Topology&) const = default;
};

// Collective. `devices`: of this process's replicas, one each; at least one. A process with
// replicas on GPUs counts as a host of its own: others do not reach its memory. Throws
// Error(kInvalid) where processes do not speak the same language, and what the bootstrap throws.
Topology discover(Bootstrap& bootstrap, const std::vector<std::string>& devices);

// The same job where processes that are hosts of their own reach each other's memory after all:
// `with` names for each process the first of those that it is one host with, of its machine; itself
// where it is alone.
Topology joined(Topology topology, const std::vector<int>& with);

std::string to_json(const Topology& topology);
// Also reads the short form in which people describe clusters, without processes and ranks: an
// entry of "hosts" then says "count" (1) of equal hosts and "ranks" (1) of each, with "cores" each
// (1) and "device"; each rank is a process. Instead of "cores" and "numa_nodes" it may say
// "machine", a line as machine_map.h reads it: then each rank has its NUMA node, too. Throws
// Error(kInvalid) saying what is wrong.
Topology topology_from_json(const std::string& text);

}  // namespace lockstep::collectives
