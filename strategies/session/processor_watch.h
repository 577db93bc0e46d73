// SPDX-License-Identifier: MIT
// Notices that this process has fewer processors than busy threads, and then lets its library
// threads sleep while they wait (engine/cpu/brief_waits.h). Known at once where the job itself has
// more threads than processors; where other programs take them, the kernel's count of the time that
// this process's threads waited for a processor tells, and one warning says so. One thread of its
// own until then, which reads some files of /proc twice a second.
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
  int library_threads = 1;  // of a replica
  int threads = 1;          // busy ones of all processes of the job on this host
  int processors = 1;
  engine::Log log = engine::Log();
  std::chrono::milliseconds interval{500};
  // The longest wait of a thread of this process since it was asked before: for tests.
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
  std::jthread thread_;  // last: it uses the others
};

}  // namespace lockstep::strategies
