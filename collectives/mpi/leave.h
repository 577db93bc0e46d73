// SPDX-License-Identifier: MIT
// Exit of a process if an MPI call cannot be ended otherwise: one line on standard error, then
// _exit. It runs no destructors and no MPI_Finalize, which would wait for dead processes.
#pragma once
#include <chrono>
#include <string>

namespace lockstep::collectives::mpi {

// EX_TEMPFAIL of sysexits.h: the same job may succeed another time.
inline constexpr int kTryAgain = 75;

// Prints "lockstep: rank 1: <why>" and exits. Thread-safe; the first caller speaks for the process.
// Waits for `after` between the line and the exit, so that the others see the cause themselves, and
// not only that this process left.
[[noreturn]] void leave(const std::string& why, std::chrono::milliseconds after = {}) noexcept;

}  // namespace lockstep::collectives::mpi
