// SPDX-License-Identifier: MIT
// Everything that one process needs to run a fixed list of plans as one rank of a job. It has a
// team, an executor, connections to other hosts if plans need them, and a block of memory that all
// ranks of its host map. Communicators, their buckets and benchmarks use it. Strategies of graphs,
// with several replicas per process, have executors of their own (strategies/synchronous).
//
// All ranks create it at once (collective). One thread uses it; `stop` is thread-safe.
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
  // Connects the ranks. `bytes`: size of the gradient space. `scratch`: bytes of the scratch space.
  // `what` appears in errors. Throws Error(kInvalid) if ranks have different plans, and what
  // mapping and connecting throw. The job, with one rank per process, and the kernels outlive the
  // link.
  RankLink(Job& job, const engine::Ops& ops, StepPlan plan, std::size_t bytes, std::size_t scratch,
           const std::string& what);
  // Tells the ranks of other hosts what stopped the link, if anything did.
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  std::byte* data() const { return data_; }  // this rank's gradient space: zeroed, page-aligned
  Executor& executor() { return *executor_; }
  void check() const;  // throws what stopped the link, if anything
  // Starts a plan. Throws as `check` only if the plan was broken off; otherwise the wait throws.
  void start(int plan);
  void progress();  // nonblocking; throws as `check`
  // Makes all waits here, on any rank of this host, throw `why` from now on.
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
