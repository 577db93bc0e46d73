// SPDX-License-Identifier: MIT
// A job as one of its processes sees it: its ranks, how they reach each other, and what stops if
// one is lost. Everything that runs plans is set up on a job: strategies, communicators,
// calibration, benchmarks. A set-up has memory (host_memory.h), a team (job_team.h), connections
// (host_connections.h), and executors with `executor_options`. rank_link.h joins these for a
// process with one rank, strategies/synchronous for several.
//
// A job watches the other processes of this machine. Transports report lost processes of other
// machines. A death stops all teams of the job and breaks off all exchanges over its bootstrap.
//
// All processes create it at once (collective, one exchange). Thread-safe, except for the setters.
#pragma once
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/cost/memory_access.h"
#include "collectives/job/job_ranks.h"
#include "collectives/job/network.h"
#include "collectives/run/executor.h"
#include "collectives/run/peer_watch.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

struct JobOptions {
  std::chrono::milliseconds deadline{60000};  // limit of each wait for another rank
  Network network = {};                       // between hosts
  std::string activity = {};                  // ends errors of deaths without an Activity
};

class Job {
 public:
  // Creates a job. What `ranks` refers to must outlive it. Throws Error(kInvalid) if the deadline
  // is not positive, what the exchange throws, and Error(kIo) if processes cannot be watched.
  Job(JobRanks ranks, const JobOptions& options);
  // Creates a job without an exchange, from known process ids (`pids`, by process).
  Job(JobRanks ranks, const std::vector<int>& pids, const JobOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const JobRanks& ranks() const { return ranks_; }
  Bootstrap& bootstrap() const { return ranks_.bootstrap; }
  int rank() const { return first_; }  // the first of this process
  int size() const { return ranks_.size(); }
  // Returns whether each rank of this machine is a process of its own.
  bool ranks_are_processes() const { return ranks_are_processes_; }
  std::chrono::milliseconds deadline() const { return options_.deadline; }
  const Network& network() const { return options_.network; }
  // Returns options with the job's deadline and memory access.
  ExecutorOptions executor_options() const;

  // Sets how sums of this host access memory (memory_access.h), for executors that are created
  // later.
  void set_access(const MemoryAccess& access) { access_ = access; }
  const MemoryAccess& access() const { return access_; }
  // Sets the host of each rank, instead of that in `ranks`. Ranks of one host share memory.
  void set_hosts(std::vector<int> host) { ranks_.host = std::move(host); }

  // Stops everything that waits, on all ranks of this host. After kPeerLost, exchanges over the
  // bootstrap break off too, and the job is over: teams that are created later are stopped at once.
  void stop(const engine::Error& why) noexcept;
  // Returns the error of the first lost rank.
  std::optional<engine::Error> lost() const;
  // Sets whether deaths are ignored while there is nothing to stop. That is for an error of all
  // ranks, which then leave one by one. Returns the previous value.
  bool expect_deaths(bool expected);
  // Ignores all later deaths, for an orderly end.
  void release();

  // Registers a function that `stop` calls while this object lives. It is called at once if a rank
  // is lost already. Functions are called in the order of their registration. They must not throw
  // or call the job, and may wait only for what an earlier function ends.
  class Stopper {
   public:
    Stopper(Job& job, std::function<void(const engine::Error&)> stop);
    ~Stopper();
    Stopper(const Stopper&) = delete;
    Stopper& operator=(const Stopper&) = delete;

   private:
    Job& job_;
    std::list<std::function<void(const engine::Error&)>>::iterator at_;
  };

  // Describes what the process does, in errors of deaths: "<before>rank 2 (pid 4711)
  // died<after>". The description holds while this object lives. The latest one counts.
  class Activity {
   public:
    Activity(Job& job, std::string before, std::string after);
    ~Activity();
    Activity(const Activity&) = delete;
    Activity& operator=(const Activity&) = delete;

   private:
    Job& job_;
    std::string before_, after_;  // previous texts
  };

 private:
  void died(const PeerProcess& peer) noexcept;
  void stop_all(const engine::Error& why) noexcept;  // under the lock

  JobRanks ranks_;
  JobOptions options_;
  int first_;
  MemoryAccess access_ = {};
  mutable std::mutex mutex_;  // protects the members up to after_
  std::list<std::function<void(const engine::Error&)>> stops_;
  std::optional<engine::Error> lost_;
  bool expected_ = false;
  std::string before_, after_;
  bool ranks_are_processes_ = false;
  std::unique_ptr<PeerWatch> watch_;  // last: its thread uses the others
};

}  // namespace lockstep::collectives
