// SPDX-License-Identifier: MIT
// Threads that do pieces of work at their times, earlier ones first. For what must not be done on
// the caller's thread: an answer after a pause, or outside of somebody's locks, or what takes long.
//
// Any thread may add work, also work itself. One that idles costs its sleeping threads.
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
  using Work = std::function<void()>;  // throws nothing

  explicit TimedWork(int threads = 1);
  ~TimedWork();  // waits for the work that is being done; drops what is not begun. Not from work
  TimedWork(const TimedWork&) = delete;
  TimedWork& operator=(const TimedWork&) = delete;

  using Ticket = std::pair<engine::Clock::time_point, std::uint64_t>;
  Ticket add(engine::Clock::time_point when, Work work);
  Ticket add(Work work) { return add(engine::Clock::time_point::min(), std::move(work)); }  // now
  void remove(const Ticket& ticket);  // nothing happens where it was begun

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  // By time, then in the order in which they were added.
  std::map<Ticket, Work> work_;
  std::uint64_t added_ = 0;
  bool end_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::strategies
