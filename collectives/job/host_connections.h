// SPDX-License-Identifier: MIT
// Connections between the ranks that the plans of a step let talk across hosts: each process
// listens, sends its address and a random key through the bootstrap, and the ranks of each pair
// connect (collectives/tcp); or MPI carries their messages (collectives/mpi).
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/job/job_ranks.h"
#include "collectives/job/network.h"
#include "collectives/plan/plan.h"
#include "collectives/run/transport.h"

namespace lockstep::collectives {

// Collective. Element i is for rank i of `ranks.mine()`; null where all ranks are on one host.
// `what` stands in front in errors: "buckets: ". Throws Error(kTimeout) naming who did not come,
// and what the bootstrap throws or was abandoned with; where a process cannot listen,
// Error(kInvalid) or Error(kIo) on all of them.
std::vector<std::unique_ptr<Transport>> connect_hosts(const JobRanks& ranks, const StepPlan& plan,
                                                      const Network& network,
                                                      std::chrono::milliseconds deadline,
                                                      const std::string& what);

}  // namespace lockstep::collectives
