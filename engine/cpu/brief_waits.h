// SPDX-License-Identifier: MIT
// While it lives, library threads that wait for each other sleep after some microseconds, where
// they would otherwise spin for milliseconds on a processor that other threads need. For machines
// with more busy threads than processors. libgomp does this where it manages more threads than
// there are processors; so this adds a team of as many threads, all of which sleep. It does nothing
// where the system refuses so many.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep::engine::cpu {

class BriefWaits {
 public:
  BriefWaits();   // returns when it counts
  ~BriefWaits();  // joins
  BriefWaits(const BriefWaits&) = delete;
  BriefWaits& operator=(const BriefWaits&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false, over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::engine::cpu
