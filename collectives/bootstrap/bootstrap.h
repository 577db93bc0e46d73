// SPDX-License-Identifier: MIT
// Bootstrap of a job: how its processes find each other before lockstep connects them. It gives the
// number of this process, the number of processes, and an all-gather of small values. Sessions use
// it while they open, never in a step. One thread at a time calls it, except for `abandon`. Every
// wait has a deadline: Error(kTimeout) names the exchange and, if known, the missing processes.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::collectives {

class Transport;

class Bootstrap {
 public:
  static constexpr std::size_t kMostBytes = std::size_t(1) << 20;  // bytes of one value
  virtual ~Bootstrap() = default;
  virtual std::string description() const = 0;  // "Open MPI 4.1.4", "one process"
  virtual int process() const = 0;
  virtual int processes() const = 0;
  // Returns the values of all processes, by process; each has at most kMostBytes. Collective.
  // `what` appears in errors. It must be the same in all processes, else all throw Error(kInvalid).
  virtual std::vector<std::string> all_gather(const std::string& mine, const std::string& what) = 0;
  // Returns the host of each process. Hosts are numbered from 0 in order of first appearance.
  virtual std::vector<int> hosts() const = 0;
  // Returns the secret that all processes know already. It is empty if strangers cannot read the
  // exchanges, so that these may carry one.
  virtual std::string secret() const { return {}; }
  // Returns a transport for each rank of this process, over the system that connected the processes
  // (MPI). `process`: the process of each rank. `pairs`: {rank here, rank there} that exchange
  // messages. Collective. Throws Error(kInvalid) if the bootstrap has no transports.
  virtual std::vector<std::unique_ptr<Transport>> transports(
      const std::vector<int>& process, const std::vector<std::pair<int, int>>& pairs,
      const std::string& what);
  // Makes the current and all later exchanges of this process throw `why`, for a caller that knows
  // that a process will not come. An exchange whose values have all arrived still succeeds.
  // `finish` then waits for nobody and ends nothing. Thread-safe.
  virtual void abandon(const engine::Error& why) noexcept = 0;
  // Throws the error that `abandon` was given, if any. For callers that wait by other means.
  virtual void throw_if_abandoned() = 0;
  // Ends the bootstrap in order. Collective. If the deadline passes, the process leaves by _exit.
  // Do not call it after a failure: then nothing is to be ended.
  virtual void finish() = 0;
};

std::unique_ptr<Bootstrap> single_process();

// Returns the views of one in-memory exchange, in which threads play processes, for tests. Element
// i is for thread i. `host`: the host of each process.
std::vector<std::unique_ptr<Bootstrap>> in_memory_bootstrap(std::vector<int> host,
                                                            std::chrono::milliseconds deadline);

}  // namespace lockstep::collectives
