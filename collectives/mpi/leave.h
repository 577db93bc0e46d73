// SPDX-License-Identifier: MIT
// The way out where a call of MPI cannot be ended otherwise: one line on standard error, then
// _exit. No destructors, no MPI_Finalize, which would wait for the dead.
#pragma once
#include <chrono>
#include <string>

namespace lockstep::collectives::mpi {

inline constexpr int kTryAgain = 75;  // EX_TEMPFAIL of sysexits: the same job may work another time

// "lockstep: rank 1: <why>"; from any thread, and the first one speaks for the process. `after` the
// line and before the end others have time to see for themselves what this process saw, and not
// only that it left.
[[noreturn]] void leave(const std::string& why, std::chrono::milliseconds after = {}) noexcept;

}  // namespace lockstep::collectives::mpi
