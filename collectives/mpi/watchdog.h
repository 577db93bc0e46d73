// SPDX-License-Identifier: MIT
// Deadline of a call that cannot be canceled. A thread waits while the watchdog lives. If the time
// is over first, the process exits with `what` in its message and code 75. One thread each.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::collectives::mpi {

class Watchdog {
 public:
  Watchdog(std::string what, std::chrono::milliseconds deadline);
  ~Watchdog() = default;  // joins
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable_any called_off_;
  std::jthread thread_;  // last, since it uses the others
};

}  // namespace lockstep::collectives::mpi
