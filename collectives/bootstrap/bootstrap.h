// SPDX-License-Identifier: MIT
// How the processes of a job find each other before anything of lockstep connects them: who am I,
// how many are we, and an all-gather of small values. Used while a session opens and never in a
// step. One thread at a time, but for `abandon`. Every wait has a deadline: Error(kTimeout) says
// who is missing where that can be known, and what was being exchanged.
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
  static constexpr std::size_t kMostBytes = std::size_t(1) << 20;  // of one value
  virtual ~Bootstrap() = default;
  virtual std::string description() const = 0;  // "Open MPI 4.1.4", "one process"
  virtual int process() const = 0;
  virtual int processes() const = 0;
  // Everybody's value, by process; each up to kMostBytes. Collective. `what` stands in errors,
  // and is the same in all processes, else all throw Error(kInvalid).
  virtual std::vector<std::string> all_gather(const std::string& mine, const std::string& what) = 0;
  // Which host each process is on, numbered from 0 in order of first appearance.
  virtual std::vector<int> hosts() const = 0;
  // For each rank of this process, a transport over what the processes found each other with (MPI),
  // made for these `pairs` of {rank here, rank there}; `process`: of each rank. Collective.
  // Error(kInvalid) where there is no such thing.
  virtual std::vector<std::unique_ptr<Transport>> transports(
      const std::vector<int>& process, const std::vector<std::pair<int, int>>& pairs,
      const std::string& what);
  // From any thread, who knows that somebody will not come: the present exchange of this process
  // and all later ones throw `why`, but for one whose values are all there. `finish`
  // waits for nobody then, and ends nothing.
  virtual void abandon(const engine::Error& why) noexcept = 0;
  // Throws that, once it was abandoned: for whoever waits for others by another way.
  virtual void throw_if_abandoned() = 0;
  // Ends orderly; collective; with a deadline after which the process leaves by _exit. Without a
  // call nothing is ended: that is right after a failure.
  virtual void finish() = 0;
};

std::unique_ptr<Bootstrap> single_process();

// `processes` views of one in-memory exchange: ranks as threads that play processes, for tests.
// `host`: of each. Element i is for thread i.
std::vector<std::unique_ptr<Bootstrap>> in_memory_bootstrap(std::vector<int> host,
                                                            std::chrono::milliseconds deadline);

}  // namespace lockstep::collectives
