// SPDX-License-Identifier: MIT
#include "collectives/mpi/watchdog.h"

#include <fmt/core.h>

#include <utility>

#include "collectives/mpi/leave.h"
#include "collectives/mpi/siblings.h"

namespace lockstep::collectives::mpi {
namespace {

// Delay before the exit. The others' deadlines end soon, and they must not take this exit for the
// cause.
constexpr std::chrono::milliseconds kForOthers{250};

}  // namespace

Watchdog::Watchdog(std::string what, std::chrono::milliseconds deadline)
    : thread_([this, what = std::move(what), deadline](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        called_off_.wait_for(lock, stop, deadline, [] { return false; });
        if (stop.stop_requested()) return;
        const std::string stopped = stopped_siblings();
        leave(fmt::format("{} did not end in {} s: {}", what, double(deadline.count()) / 1000,
                          stopped.empty()
                              ? "a process of this job is dead, stopped or cannot be reached"
                              : stopped),
              kForOthers);
      }) {}

}  // namespace lockstep::collectives::mpi
