// SPDX-License-Identifier: MIT
// Ends a process of a benchmark that still hangs shortly after another rank died, for example in an
// MPI call that the job cannot stop. It prints a line that names the lost rank. It owns a thread.
// The job outlives it.
#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "collectives/job/job.h"

namespace lockstep::tools::bench {

class DeathWatch {
 public:
  explicit DeathWatch(collectives::Job& job);

 private:
  void serve(const std::stop_token& over);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<engine::Error> lost_;
  collectives::Job::Stopper stopper_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace lockstep::tools::bench
