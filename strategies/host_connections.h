// SPDX-License-Identifier: MIT
// Connections between the ranks that the plans of a step let talk across hosts: each process
// listens, tells its address through the bootstrap with a random key, and the ranks of each pair
// meet (collectives/tcp).
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/plan.h"
#include "collectives/transport.h"
#include "strategies/job_ranks.h"

namespace lockstep::strategies {

// Collective. Element i is for rank i of `ranks.mine()`; null where all ranks are on one host.
// `what` stands in front in errors: "buckets: ". Throws Error(kTimeout) naming who did not come,
// Error(kIo), and what the bootstrap throws.
std::vector<std::unique_ptr<collectives::Transport>> connect_hosts(
    const JobRanks& ranks, const collectives::StepPlan& plan, std::chrono::milliseconds deadline,
    const std::string& what);

}  // namespace lockstep::strategies
