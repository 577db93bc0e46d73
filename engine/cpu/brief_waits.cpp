// SPDX-License-Identifier: MIT
#include "engine/cpu/brief_waits.h"

#include <omp.h>

#include <atomic>
#include <latch>
#include <system_error>
#include <vector>

namespace lockstep::engine::cpu {
namespace {

// Returns whether the system lets this process start so many more threads. libgomp ends the process
// if the system refuses its threads.
bool can_start(int threads) {
  std::latch all_started(1);
  std::vector<std::jthread> started;
  bool can = true;
  try {
    for (int i = 0; i < threads; ++i) started.emplace_back([&] { all_started.wait(); });
  } catch (const std::system_error&) {
    can = false;
  }
  all_started.count_down();
  return can;
}

}  // namespace

// Runs the team on a thread of its own, because a team lives as long as the thread that made it.
BriefWaits::BriefWaits() {
  const int members = omp_get_num_procs() + 1;
  if (!can_start(members + 1)) return;
  thread_ = std::thread([this, members] {
    std::atomic<int> there = 0;  // keeps the team from being optimized away
#pragma omp parallel num_threads(members)
    ++there;
    std::unique_lock lock(mutex_);
    started_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return over_; });
  });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_; });
}

BriefWaits::~BriefWaits() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep::engine::cpu
