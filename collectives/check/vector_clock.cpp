// SPDX-License-Identifier: MIT
#include "collectives/check/vector_clock.h"

#include <algorithm>

namespace lockstep::collectives {
namespace {

bool earlier_thread(const Stamp& stamp, int thread) {
  return stamp.thread < thread;
}

}  // namespace

int VectorClock::at(int thread) const {
  const auto found = std::lower_bound(known_.begin(), known_.end(), thread, earlier_thread);
  return found != known_.end() && found->thread == thread ? found->time : 0;
}

Stamp VectorClock::tick(int thread) {
  auto found = std::lower_bound(known_.begin(), known_.end(), thread, earlier_thread);
  if (found == known_.end() || found->thread != thread) found = known_.insert(found, {thread, 0});
  ++found->time;
  return *found;
}

void VectorClock::join(const VectorClock& other) {
  std::vector<Stamp> both;
  both.reserve(known_.size() + other.known_.size());
  auto a = known_.begin();
  auto b = other.known_.begin();
  while (a != known_.end() && b != other.known_.end()) {
    if (a->thread == b->thread) {
      both.push_back(a->time >= b->time ? *a : *b);
      ++a, ++b;
    } else {
      both.push_back(a->thread < b->thread ? *a++ : *b++);
    }
  }
  both.insert(both.end(), a, known_.end());
  both.insert(both.end(), b, other.known_.end());
  known_ = std::move(both);
}

}  // namespace lockstep::collectives
