// SPDX-License-Identifier: MIT
#include "collectives/mpi/watchdog.h"

#include <fmt/format.h>

#include <utility>

#include "collectives/mpi/leave.h"

namespace lockstep::collectives::mpi {

Watchdog::Watchdog(std::string what, std::chrono::milliseconds deadline)
    : thread_([this, what = std::move(what), deadline](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        called_off_.wait_for(lock, stop, deadline, [] { return false; });
        if (stop.stop_requested()) return;
        leave(fmt::format(
            "{} did not end in {} s: a process of this job is dead, stopped or cannot be reached",
            what, double(deadline.count()) / 1000));
      }) {}

}  // namespace lockstep::collectives::mpi
