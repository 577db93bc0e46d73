// SPDX-License-Identifier: MIT
// Topology of a job: hosts, processes on them, and ranks (replicas) in these, each with its device.
// It is a plain value, the same on all processes. Ranks are numbered process by process, beginning
// with process 0's replicas. It has the costs of each host and of the wire between them if they
// were measured or described, else the defaults of link_costs.h. It is read and written as JSON.
// Thread-safe.
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
    std::string name;  // "h2"; numbered if several share it: "h2#1"
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
    std::string device = {};  // name of the device: "cpu:0"
    // Number by its host's system. It is the node of all processors on which the rank runs with one
    // thread (binding.h), or none if they are on several nodes.
    std::optional<int> numa_node = {};
    bool operator==(const Rank&) const = default;
  };
  std::vector<Host> hosts;
  std::vector<Process> processes;
  std::vector<Rank> ranks;
  WireCosts wire = {};
  std::vector<Trial> trials = {};  // timed by these ranks
  // Origin of the costs: "assumed" (the defaults), "measured", or "described" (a file by hand).
  std::string costs_are = "assumed";

  std::vector<int> host_of_rank() const;
  std::vector<int> ranks_of_process(int process) const;  // ascending, contiguous
  std::vector<int> ranks_of_host(int host) const;        // ascending
  int cores_of_host(int host) const;                     // shared by its ranks
  std::string name_of_host(int rank) const {
    return hosts[std::size_t(ranks[std::size_t(rank)].host)].name;
  }
  Topology first_hosts(int count) const;  // a smaller cluster: these and their ranks
  Topology first_ranks(int count) const;  // likewise, by ranks: at least one
  // Returns a summary for people: "4 ranks in 2 processes on 1 host: vm (2 processors, 1 NUMA
  // node)".
  std::string describe() const;
  bool operator==(const Topology&) const = default;
};

// Returns the topology; collective. `devices`: one per replica of this process, at least one. A
// process with replicas on GPUs counts as a host of its own, since other processes cannot access
// its memory. Throws Error(kInvalid) if a process sends a text that the others cannot read, and
// what the bootstrap throws.
Topology discover(Bootstrap& bootstrap, const std::vector<std::string>& devices);

// Returns the same job if processes that are hosts of their own can access each other's memory
// after all. `with`: for each process, the first process on its machine with which it forms a host;
// itself if it is alone.
Topology joined(Topology topology, const std::vector<int>& with);

std::string to_json(const Topology& topology);
// Reads that form, and the short form in which people describe clusters, without processes and
// ranks. In the short form an entry of "hosts" has the "count" of equal hosts (default 1) and the
// "ranks" of each (1). It may have the "cores" of each (as many as ranks) and the "device". Each
// rank is a process. Instead of "cores", "numa_nodes" and "memory" an entry may have "machine", a
// line as machine_map.h reads it. Then each rank has its NUMA node, too. Trials are valid only for
// the ranks that ran them, so remove "trials" if you edit the ranks of a file. Throws
// Error(kInvalid) that says what is wrong.
Topology topology_from_json(const std::string& text);

}  // namespace lockstep::collectives
