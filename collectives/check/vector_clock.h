// SPDX-License-Identifier: MIT
// Vector clocks (Lamport 1978; Fidge, Mattern 1988) that order events. A stamp identifies an event
// as the n-th of a thread. It happened before another event if and only if the other event's clock
// knows it. Clocks are sparse, since lanes that never synchronize know nothing of each other. They
// are values; `join` costs time in proportion to the known threads.
#pragma once
#include <vector>

namespace lockstep::collectives {

struct Stamp {
  int thread = -1;  // -1: before everything
  int time = 0;
};

class VectorClock {
 public:
  int at(int thread) const;  // 0 if the thread is unknown
  Stamp tick(int thread);    // adds the thread's next event
  void join(const VectorClock& other);
  bool knows(Stamp stamp) const { return stamp.thread < 0 || at(stamp.thread) >= stamp.time; }

 private:
  std::vector<Stamp> known_;  // ascending by thread
};

}  // namespace lockstep::collectives
