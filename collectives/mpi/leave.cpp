// SPDX-License-Identifier: MIT
#include "collectives/mpi/leave.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "collectives/mpi/siblings.h"

namespace lockstep::collectives::mpi {

void leave(const std::string& why, std::chrono::milliseconds after) noexcept {
  static std::atomic_flag left;  // later errors are consequences of the first
  while (left.test_and_set()) pause();
  const auto rank = rank_here();
  const std::string line = rank ? fmt::format("lockstep: rank {}: {}\n", *rank, why)
                                : fmt::format("lockstep: {}\n", why);
  // Writes once, so that lines of several ranks do not mix. A failed write changes nothing now.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  std::this_thread::sleep_for(after);
  _exit(kTryAgain);
}

}  // namespace lockstep::collectives::mpi
