// SPDX-License-Identifier: MIT
// Makes waiting library threads sleep after some microseconds instead of spinning for milliseconds,
// as long as this object lives. Use it if there are more busy threads than processors. libgomp
// waits only briefly if it manages more threads than there are processors, so this object adds a
// team of that many sleeping threads. It does nothing if the system refuses so many.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep::engine::cpu {

class BriefWaits {
 public:
  BriefWaits();   // returns when it is in effect
  ~BriefWaits();  // joins
  BriefWaits(const BriefWaits&) = delete;
  BriefWaits& operator=(const BriefWaits&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false, over_ = false;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace lockstep::engine::cpu
