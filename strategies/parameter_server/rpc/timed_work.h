// SPDX-License-Identifier: MIT
// Threads that run functions at given times, in the order of their times. Useful for work that must
// not run on the caller's thread: an answer after a pause or outside of locks, or slow work.
//
// Thread-safe; work may add work. An idle object costs only its sleeping threads.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::strategies {

class TimedWork {
 public:
  using Work = std::function<void()>;  // must not throw

  explicit TimedWork(int threads = 1);
  // Waits for running work and drops the rest. Must not be called from work.
  ~TimedWork();
  TimedWork(const TimedWork&) = delete;
  TimedWork& operator=(const TimedWork&) = delete;

  using Ticket = std::pair<engine::Clock::time_point, std::uint64_t>;
  Ticket add(engine::Clock::time_point when, Work work);
  Ticket add(Work work) { return add(engine::Clock::time_point::min(), std::move(work)); }  // now
  void remove(const Ticket& ticket);  // no effect after the work began

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  // Sorted by time, then by the order of `add`.
  std::map<Ticket, Work> work_;
  std::uint64_t added_ = 0;
  bool end_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::strategies
