// SPDX-License-Identifier: MIT
#include "collectives/job/replica_threads.h"

#include <stdexcept>
#include <system_error>

#include "collectives/topology/binding.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

ReplicaThreads::ReplicaThreads(const std::vector<std::vector<int>>& processors) {
  try {
    for (std::size_t i = 0; i < processors.size(); ++i) {
      threads_.emplace_back([this, i, own = processors[i]] { serve(int(i), own); });
    }
  } catch (const std::system_error& e) {
    stop();
    engine::fail(engine::Code::kIo, "no thread for each of {} replicas: {}", processors.size(),
                 e.what());
  }
}

ReplicaThreads::~ReplicaThreads() {
  stop();
}

void ReplicaThreads::stop() {
  {
    std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::run(const std::function<void(int)>& body,
                         const std::function<void(const std::exception&)>& failed) {
  std::unique_lock lock(mutex_);
  body_ = &body;
  failed_ = &failed;
  first_ = nullptr;
  running_ = count();
  ++round_;
  changed_.notify_all();
  // The bodies wait for other replicas with their own deadlines, so this ends.
  changed_.wait(lock, [&] { return running_ == 0; });
  if (first_) std::rethrow_exception(first_);
}

void ReplicaThreads::serve(int index, const std::vector<int>& processors) {
  bind_this_thread(processors);
  for (std::uint64_t seen = 0;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_ || round_ > seen; });
    if (over_) return;
    seen = round_;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*body_)(index);
    } catch (const std::exception& e) {
      error = std::current_exception();
      std::scoped_lock guard(mutex_);
      if (!first_) {
        first_ = error;
        (*failed_)(e);
      }
    }
    lock.lock();
    if (--running_ == 0) changed_.notify_all();
  }
}

}  // namespace lockstep::collectives
