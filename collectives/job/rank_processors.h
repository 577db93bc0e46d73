// SPDX-License-Identifier: MIT
// Which processors the ranks of this process should run on, by what all processes of its host may
// use. Collective.
#pragma once
#include <string>

#include "collectives/job/job_ranks.h"
#include "collectives/topology/binding.h"

namespace lockstep::collectives {

struct RankProcessors {
  Binding binding;  // of the ranks of this process
  int of_host = 1;  // that the ranks of this host may use together
  // On every machine as many processors as ranks, also where several hosts of the job are parts of
  // one machine. The same on all processes.
  bool enough = true;
  // Hosts of the job that are parts of one machine, where they are most. The same on all processes.
  int hosts_of_machine = 1;
};

// `what` stands in errors of the exchange: "processors of the ranks". `threads`: library threads
// of each rank.
RankProcessors processors_of_ranks(const JobRanks& ranks, const std::string& what, int threads = 1);

}  // namespace lockstep::collectives
