// SPDX-License-Identifier: MIT
// What one process needs to run a fixed list of plans as one rank of a job: a block of memory that
// all ranks of its host map, the team, connections to other hosts where plans ask for them, the
// executor. Communicators, their buckets and benchmarks are built on it; strategies of graphs, with
// several replicas a process, have executors of their own (strategies/synchronous).
//
// Made by all ranks at once (collective). One thread uses it; `stop` may be called from any.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "collectives/job/host_memory.h"
#include "collectives/job/job.h"
#include "collectives/job/job_team.h"
#include "collectives/run/executor.h"
#include "collectives/run/transport.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

class RankLink {
 public:
  // `bytes`: of the gradient space; `scratch`: bytes of the scratch space. `what` stands in errors.
  // Throws Error(kInvalid) where ranks come with different plans, and what mapping and connecting
  // throw. The job, with one rank a process, and the kernels outlive the link.
  RankLink(Job& job, const engine::Ops& ops, StepPlan plan, std::size_t bytes, std::size_t scratch,
           const std::string& what);
  // Where something has stopped the link, the ranks of other hosts are told what.
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  std::byte* data() const { return data_; }  // this rank's gradient space: zeroed, page-aligned
  Executor& executor() { return *executor_; }
  void check() const;  // throws what stopped the link, where something has
  // Throws it only where the plan was broken off: else the wait does.
  void start(int plan);
  void progress();  // moves what can move, never waits, and throws as `check`
  // All that wait here, on any rank of this host, throw `why` from now on.
  void stop(const engine::Error& why) noexcept { team_->stop(why); }

 private:
  void make_team(Job& job, std::size_t bytes, std::size_t scratch, const std::string& what);

  StepPlan plan_;
  std::optional<HostMemory> memory_;
  std::byte* data_ = nullptr;
  std::optional<JobTeam> team_;
  std::unique_ptr<Transport> transport_;
  std::optional<Executor> executor_;
};

}  // namespace lockstep::collectives
