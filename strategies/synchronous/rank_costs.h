// SPDX-License-Identifier: MIT
// What the ranks of a job cost each other, as a strategy finds it for the planner while the job
// starts: measured by calibration, read from where an earlier job kept it, or assumed.
#pragma once
#include <string>

#include "collectives/job/job.h"
#include "collectives/topology/topology.h"
#include "strategies/synchronous/synchronous_options.h"

namespace lockstep::strategies {

// Puts the costs into the topology of the job's ranks, and returns how they were found: "measured
// in 0.31 s while the job started". `queued`: the replicas are on GPUs. Collective; throws what
// calibration throws (collectives/job/calibration.h). After a throw deaths are ignored.
std::string find_costs(collectives::Job& job, collectives::Topology& topology,
                       const SynchronousOptions& options, bool queued);

}  // namespace lockstep::strategies
