// SPDX-License-Identifier: MIT
// Detection of too few processors for this process's busy threads. Library threads then sleep while
// they wait (engine/cpu/brief_waits.h). If the job itself has more threads than processors, this is
// known at once. Otherwise a thread checks twice a second, with some files of /proc, how long this
// process's threads waited for a processor. If other programs use the processors, it warns once and
// ends.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "collectives/run/processor_wait.h"
#include "engine/base/log.h"
#include "engine/cpu/brief_waits.h"

namespace lockstep::strategies {

struct ProcessorWatchOptions {
  int library_threads = 1;  // per replica
  // Busy threads of all processes of the job on this host.
  int threads = 1;
  int processors = 1;
  engine::Log log = engine::Log();
  std::chrono::milliseconds interval{500};
  // Returns the longest wait of a thread of this process since the last call; for tests.
  std::function<collectives::ProcessorWait()> wait = {};
};

class ProcessorWatch {
 public:
  explicit ProcessorWatch(ProcessorWatchOptions options);
  ProcessorWatch(const ProcessorWatch&) = delete;
  ProcessorWatch& operator=(const ProcessorWatch&) = delete;

 private:
  void watch(const std::stop_token& stop);
  ProcessorWatchOptions options_;
  std::optional<engine::cpu::BriefWaits> brief_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last member: it uses the others
};

}  // namespace lockstep::strategies
