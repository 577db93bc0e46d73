// SPDX-License-Identifier: MIT
// Processors on which the ranks of this process should run, given what all processes of its host
// may use. Collective.
#pragma once
#include <string>

#include "collectives/job/job_ranks.h"
#include "collectives/topology/binding.h"

namespace lockstep::collectives {

struct RankProcessors {
  Binding binding;  // binding of this process's ranks
  int of_host = 1;  // processors for all ranks of this host
  // True if every machine has at least as many processors as ranks, even if several hosts of the
  // job are parts of one machine. The same on all processes.
  bool enough = true;
  // Largest number of hosts of the job that are parts of one machine. The same on all processes.
  int hosts_of_machine = 1;
};

// Returns the processors of the ranks. `what` appears in errors: "processors of the ranks".
// `threads`: library threads per rank.
RankProcessors processors_of_ranks(const JobRanks& ranks, const std::string& what, int threads = 1);

}  // namespace lockstep::collectives
