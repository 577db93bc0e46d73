// SPDX-License-Identifier: MIT
// Connections between the ranks of different hosts that exchange messages in the plans of a step.
// Each process listens, and sends its address and a random key through the bootstrap. Then the
// ranks of each pair connect (collectives/tcp). With transport mpi, MPI carries the messages
// (collectives/mpi).
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

// Connects the ranks of this process. Collective. Element i is for rank i of `ranks.mine()`, or
// null if all ranks are on one host. `what` precedes the text of errors: "buckets: ". Throws
// Error(kTimeout), which names the missing ranks, and what the bootstrap throws or was abandoned
// with. If a process cannot listen, all throw Error(kInvalid) or Error(kIo).
std::vector<std::unique_ptr<Transport>> connect_hosts(const JobRanks& ranks, const StepPlan& plan,
                                                      const Network& network,
                                                      std::chrono::milliseconds deadline,
                                                      const std::string& what);

}  // namespace lockstep::collectives
