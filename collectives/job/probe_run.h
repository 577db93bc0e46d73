// SPDX-License-Identifier: MIT
// Runs groups of probes with all ranks of a job and times them. It has a thread for each rank of
// this process, memory that the ranks of each host map, and connections between hosts. Each group
// has its own executor (each plan, if kinds of access are compared), since idle plans cost the
// running ones a poll. Collective: all processes create it and call it alike. The objects that the
// constructor's arguments refer to must outlive it.
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
  // Allocates memory for the groups `largest`. `processors`: one entry per rank of this process, as
  // for ReplicaThreads. `waited`: as for ProcessorWaitClock.
  ProbeRun(Job& job, const std::vector<ProbeGroup>& largest, const engine::Ops& ops,
           const std::vector<std::vector<int>>& processors, std::function<double()> waited);
  ProbeRun(const ProbeRun&) = delete;
  ProbeRun& operator=(const ProbeRun&) = delete;

  // Returns what all ranks measured, the same on all processes. A host that exceeds the time of a
  // group does fewer rounds of it. Memory is accessed as the job says, unless a probe says
  // otherwise. Every wait has the job's deadline. Throws Error(kTimeout) or Error(kPeerLost), which
  // name ranks.
  std::vector<Sample> measure(const std::vector<ProbeGroup>& groups);
  // Returns the wait of the rank that waited for a processor for the largest part of its time, over
  // all measurements. The same on all processes.
  ProcessorWait processor_wait() const;

 private:
  // Times of one rank: for each probe of each group the number of repetitions and the seconds of
  // each. Behind them are the seconds that it waited for a processor, and the seconds of the whole.
  using Times = std::vector<double>;
  void measure(int index, const ProbeGroup& group, std::size_t number,
               engine::Clock::time_point run_began, Times& times);
  std::vector<std::string> exchange(const std::string& mine);
  void listen(const std::stop_token& stop) noexcept;
  void add_team(const ProbeGroup& group);
  std::vector<Sample> samples_of(const std::vector<ProbeGroup>& groups,
                                 const std::vector<std::string>& all);
  // Returns a flag of a group of this host: 1 if round `turn` is to be done. For turn 0: 1 if the
  // group's limit has passed.
  std::atomic<std::uint32_t>& goes_on(std::size_t team, int turn) const;

  Job& job_;
  const JobRanks& ranks_;
  const engine::Ops& ops_;
  std::function<double()> waited_;
  std::vector<int> mine_;
  Job::Activity activity_;
  std::size_t elements_ = 0;  // elements in a rank's gradient space
  std::unique_ptr<HostMemory> memory_;
  std::vector<std::unique_ptr<Transport>> transports_;  // one per rank of this process
  std::vector<std::unique_ptr<JobTeam>> teams_;         // one per group so far
  std::vector<ProcessorWait> waits_;                    // one per rank
  std::unique_ptr<ReplicaThreads> threads_;
};

}  // namespace lockstep::collectives
