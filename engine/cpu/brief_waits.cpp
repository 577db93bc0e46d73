// SPDX-License-Identifier: MIT
#include "engine/cpu/brief_waits.h"

#include <omp.h>

#include <atomic>

namespace lockstep::engine::cpu {

// A team lives as long as the thread that made it.
BriefWaits::BriefWaits()
    : thread_([this] {
        std::atomic<int> members = 0;  // so that the team is not optimized away
#pragma omp parallel num_threads(omp_get_num_procs() + 1)
        ++members;
        std::unique_lock lock(mutex_);
        started_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return over_; });
      }) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_; });
}

BriefWaits::~BriefWaits() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace lockstep::engine::cpu
