// SPDX-License-Identifier: MIT
// Permanent threads of a process's replicas, one each. `run` gives all of them one function and
// returns when all have returned. It rethrows the first error of any thread and passes it to
// `failed` at once, so that the others can be woken. One owner thread calls run.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::collectives {

class ReplicaThreads {
 public:
  // Starts one thread per entry, bound to these processors if there are any.
  explicit ReplicaThreads(const std::vector<std::vector<int>>& processors);
  ~ReplicaThreads();  // joins
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;
  int count() const { return int(threads_.size()); }
  void run(const std::function<void(int)>& body,
           const std::function<void(const std::exception&)>& failed);

 private:
  void serve(int index, const std::vector<int>& processors);
  void stop();
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int)>* body_ = nullptr;
  const std::function<void(const std::exception&)>* failed_ = nullptr;
  std::uint64_t round_ = 0;
  int running_ = 0;
  bool over_ = false;
  std::exception_ptr first_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::collectives
