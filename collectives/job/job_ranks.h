// SPDX-License-Identifier: MIT
// The ranks of a job as one of its processes sees them: who is on which process and host, and how
// to reach the others before anything connects them. The same on all processes, but for `mine` and
// `local`. The bootstrap outlives it. Any thread; what exchanges something over the bootstrap, one
// at a time.
#pragma once
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/run/peer_watch.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

struct JobRanks {
  Bootstrap& bootstrap;
  std::vector<int> process;  // of each rank; they are numbered process by process
  std::vector<int> host;     // of each rank

  int size() const { return int(host.size()); }
  std::vector<int> mine() const;   // of this process, ascending; at least one
  std::vector<int> local() const;  // of this host, ascending
  bool one_host() const;           // of all of them
};

// One rank a process.
JobRanks rank_of_each_process(Bootstrap& bootstrap);
// Those of a topology of this job.
JobRanks ranks_of(Bootstrap& bootstrap, const Topology& topology);

// The same ranks where all processes of a machine are of one host: also those whose ranks do not
// share memory, as with GPUs.
JobRanks by_machine(JobRanks ranks);

// Watches the other processes of this host, by their ranks; those of other hosts are seen by their
// transports. `pids`: of each process of the job. How many are watched: ranks that are threads of
// one process have nobody to watch. Throws what PeerWatch::add throws.
int watch_host(const JobRanks& ranks, const std::vector<int>& pids, PeerWatch& watch);

}  // namespace lockstep::collectives
