// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/timed_work.h"

namespace lockstep::strategies {

TimedWork::TimedWork(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

TimedWork::~TimedWork() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

TimedWork::Ticket TimedWork::add(engine::Clock::time_point when, Work work) {
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    ticket = {when, added_++};
    work_.emplace(ticket, std::move(work));
  }
  changed_.notify_one();
  return ticket;
}

void TimedWork::remove(const Ticket& ticket) {
  decltype(work_)::node_type removed;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  removed = work_.extract(ticket);
}

void TimedWork::run() {
  std::unique_lock lock(mutex_);
  while (!end_) {
    if (work_.empty()) {
      changed_.wait(lock);
    } else if (const auto first = work_.begin()->first.first; first > engine::Clock::now()) {
      changed_.wait_until(lock, first);
    } else {
      {
        const auto work = work_.extract(work_.begin());
        lock.unlock();
        work.mapped()();
      }  // destroys the work without the lock
      lock.lock();
    }
  }
}

}  // namespace lockstep::strategies
