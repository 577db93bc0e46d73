// SPDX-License-Identifier: MIT
// What one process, as one rank, needs to run a fixed list of plans with the others: a block of
// memory that all ranks of its host map, the team, connections to other hosts where plans ask for
// them, the executor. The base of the communicator and of its buckets; strategies of graphs, with
// several replicas a process, have their own (synchronous.cpp).
//
// Made by all ranks at once (collective). One thread uses it; `stop` may be called from any.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/cost/memory_access.h"
#include "collectives/job/host_memory.h"
#include "collectives/job/network.h"
#include "collectives/run/executor.h"
#include "collectives/run/team.h"
#include "collectives/run/transport.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

// The ranks of a job, one a process.
struct Ranks : JobRanks {
  const engine::Ops& ops;
  std::chrono::milliseconds deadline;
  Network network = {};
  MemoryAccess access = {};  // each host may have its own
  int rank() const { return bootstrap.process(); }
};

class RankLink {
 public:
  // `bytes`: of the gradient space; `scratch`: bytes of the scratch space. `what` stands in errors.
  // Throws Error(kInvalid) where ranks come with different plans, and what mapping and connecting
  // throw. What `ranks` refers to outlives the link.
  RankLink(const Ranks& ranks, StepPlan plan, std::size_t bytes, std::size_t scratch,
           const std::string& what);
  // Where something has stopped the link, the ranks of other hosts are told what.
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  std::byte* data() const { return data_; }  // this rank's gradient space: zeroed, page-aligned
  Executor& executor() { return *executor_; }
  // Throws what stopped the link, where something has. So do the next two.
  void check() const;
  void start(int plan);  // begins it
  void progress();       // moves what can move, and never waits
  // All that wait here, on any rank of this host, throw `why` from now on.
  void stop(const engine::Error& why) noexcept { team_->stop(why); }

 private:
  void make_team(const Ranks& ranks, std::size_t bytes, std::size_t scratch,
                 const std::string& what);

  StepPlan plan_;
  std::optional<HostMemory> memory_;
  std::byte* data_ = nullptr;
  std::optional<Team> team_;
  std::unique_ptr<Transport> transport_;
  std::optional<Executor> executor_;
};

}  // namespace lockstep::collectives
