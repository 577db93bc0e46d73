// SPDX-License-Identifier: MIT
// A team (collectives/run/team.h) that is stopped with its job, and at once if a rank of the job is
// lost already. The job and the memory of the control block outlive it.
#pragma once
#include "collectives/job/host_memory.h"
#include "collectives/job/job.h"
#include "collectives/run/team.h"

namespace lockstep::collectives {

class JobTeam : public Team {
 public:
  // Uses the control block of `memory`, or `control` within it.
  JobTeam(Job& job, const HostMemory& memory, std::size_t plans)
      : JobTeam(job, memory, plans, memory.control()) {}
  JobTeam(Job& job, const HostMemory& memory, std::size_t plans, std::byte* control)
      : Team(memory.local(), plans, control),
        stopper_(job, [this](const engine::Error& why) { stop(why); }) {}

 private:
  Job::Stopper stopper_;
};

}  // namespace lockstep::collectives
