// SPDX-License-Identifier: MIT
// Runs groups of probes with all ranks of a job and times them: a thread for each rank of this
// process, memory that the ranks of each host map, connections between hosts, and of each group an
// executor of its own (of each plan, where kinds of access are compared), since plans that nobody
// runs cost those that run a look. Collective: all
// processes make it and call it alike. What the constructor's arguments refer to outlives it.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "collectives/cost/calibration.h"
#include "collectives/cost/probes.h"
#include "collectives/job/host_memory.h"
#include "collectives/job/job.h"
#include "collectives/job/job_team.h"
#include "collectives/job/replica_threads.h"
#include "collectives/run/processor_wait.h"
#include "collectives/run/transport.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

class ProbeRun {
 public:
  // `largest`: the groups for whose memory there must be room. `processors`: of each rank of this
  // process, as for ReplicaThreads. `waited`: as for ProcessorWaitClock.
  ProbeRun(Job& job, const std::vector<ProbeGroup>& largest, const engine::Ops& ops,
           const std::vector<std::vector<int>>& processors, std::function<double()> waited);
  ProbeRun(const ProbeRun&) = delete;
  ProbeRun& operator=(const ProbeRun&) = delete;

  // What all ranks measured, the same on all processes. A host that needs longer for a group than
  // the group says does fewer turns of it. Memory is gone over as the job says, but where a probe
  // says otherwise. Every wait has the job's deadline; throws
  // Error(kTimeout) or Error(kPeerLost) naming ranks.
  std::vector<Sample> measure(const std::vector<ProbeGroup>& groups);
  // Of all that was measured: the rank that waited longest for a processor. The same on all
  // processes.
  ProcessorWait processor_wait() const;

 private:
  // Of one rank: of each group, of each probe, how often it was done and how long each took; behind
  // them how long it waited for a processor, and how long all took.
  using Times = std::vector<double>;
  void measure(int index, const ProbeGroup& group, std::size_t number,
               engine::Clock::time_point run_began, Times& times);
  std::vector<std::string> exchange(const std::string& mine);
  void listen(const std::stop_token& stop) noexcept;
  void add_team(const ProbeGroup& group);
  std::vector<Sample> samples_of(const std::vector<ProbeGroup>& groups,
                                 const std::vector<std::string>& all);
  // Of the host's group with this number: 1 where this turn is to be done; of turn 0: 1 where the
  // group's limit has passed.
  std::atomic<std::uint32_t>& goes_on(std::size_t team, int turn) const;

  Job& job_;
  const JobRanks& ranks_;
  const engine::Ops& ops_;
  std::function<double()> waited_;
  std::vector<int> mine_;
  Job::Activity activity_;
  std::size_t elements_ = 0;  // of a rank's gradient space
  std::unique_ptr<HostMemory> memory_;
  std::vector<std::unique_ptr<Transport>> transports_;  // of my ranks
  std::vector<std::unique_ptr<JobTeam>> teams_;         // of all groups so far
  std::vector<ProcessorWait> waits_;                    // of each rank
  std::unique_ptr<ReplicaThreads> threads_;
};

}  // namespace lockstep::collectives
