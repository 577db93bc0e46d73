// SPDX-License-Identifier: MIT
// Vector clocks (Lamport 1978; Fidge, Mattern 1988): what an event knows of the others. An event is
// a stamp: the n-th of a thread. It happened before another event exactly when that one's clock
// knows it. Sparse, since lanes of plans that never meet know nothing of each other. A value; cost
// of `join` is the number of threads known.
#pragma once
#include <vector>

namespace lockstep::collectives {

struct Stamp {
  int thread = -1;  // -1: before everything
  int time = 0;
};

class VectorClock {
 public:
  int at(int thread) const;  // 0 where nothing is known of it
  Stamp tick(int thread);    // the thread's next event, known from here on
  void join(const VectorClock& other);
  bool knows(Stamp stamp) const { return stamp.thread < 0 || at(stamp.thread) >= stamp.time; }

 private:
  std::vector<Stamp> known_;  // ascending by thread
};

}  // namespace lockstep::collectives
