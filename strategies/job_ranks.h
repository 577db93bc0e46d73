// SPDX-License-Identifier: MIT
// The ranks of a job as one of its processes sees them: who is on which process and host, and how
// to reach the others before anything connects them. The same on all processes, but for `mine` and
// `local`. The bootstrap outlives it. Any thread; what exchanges something over the bootstrap, one
// at a time.
#pragma once
#include <vector>

#include "collectives/bootstrap.h"

namespace lockstep::strategies {

struct JobRanks {
  collectives::Bootstrap& bootstrap;
  std::vector<int> process;  // of each rank; they are numbered process by process
  std::vector<int> host;     // of each rank

  int size() const { return int(host.size()); }
  std::vector<int> mine() const;   // of this process, ascending; at least one
  std::vector<int> local() const;  // of this host, ascending
  bool one_host() const;           // of all of them
};

// One rank a process.
JobRanks rank_of_each_process(collectives::Bootstrap& bootstrap);

}  // namespace lockstep::strategies
