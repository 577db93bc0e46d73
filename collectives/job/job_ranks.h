// SPDX-License-Identifier: MIT
// Ranks of a job as one of its processes sees them. They have a process and a host each, and the
// bootstrap reaches the others before anything connects them. All processes have the same, except
// for `mine` and `local`. The bootstrap outlives it. Thread-safe, but exchanges over the bootstrap
// run one at a time.
#pragma once
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/run/peer_watch.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

struct JobRanks {
  Bootstrap& bootstrap;
  std::vector<int> process;  // per rank; numbered process by process
  std::vector<int> host;     // per rank

  int size() const { return int(host.size()); }
  std::vector<int> mine() const;   // ranks of this process, ascending; never empty
  std::vector<int> local() const;  // ranks of this host, ascending
  bool one_host() const;           // whether all ranks are on one
};

// Returns one rank per process.
JobRanks rank_of_each_process(Bootstrap& bootstrap);
// Returns the ranks of a topology of this job.
JobRanks ranks_of(Bootstrap& bootstrap, const Topology& topology);

// Returns the ranks as if all processes of a machine were one host, including those whose ranks do
// not share memory, as with GPUs.
JobRanks by_machine(JobRanks ranks);

// Watches the other processes of this host, by their ranks. Transports report lost processes of
// other hosts. `pids`: one per process of the job. Returns the number of watched processes; ranks
// that are threads of one process have nobody to watch. Throws what PeerWatch::add throws.
int watch_host(const JobRanks& ranks, const std::vector<int>& pids, PeerWatch& watch);

}  // namespace lockstep::collectives
