// SPDX-License-Identifier: MIT
// Costs of communication between the ranks of a job. A strategy finds them for the planner while
// the job starts: by calibration, from an earlier job's cache, or by assumption.
#pragma once
#include <string>

#include "collectives/job/job.h"
#include "collectives/topology/topology.h"
#include "strategies/synchronous/synchronous_options.h"

namespace lockstep::strategies {

// Puts the costs into the topology of the job's ranks. Returns how they were found: "measured in
// 0.31 s while the job started". `queued`: the replicas are on GPUs. Collective. Throws
// calibration's errors (collectives/job/calibration.h). After a throw deaths are ignored.
std::string find_costs(collectives::Job& job, collectives::Topology& topology,
                       const SynchronousOptions& options, bool queued);

}  // namespace lockstep::strategies
