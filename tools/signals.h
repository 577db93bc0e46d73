// SPDX-License-Identifier: MIT
// Signals that end a run set an atomic that the training loop reads after each step: SIGINT,
// SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGXCPU. A second SIGINT or SIGQUIT ends the
// program at once; the others may be repeated, as launchers do. Signals that the program was
// started to ignore stay ignored.
#pragma once
#include <atomic>

namespace lockstep::tools {

// Sets the handlers. Returns the atomic: 0 or the first signal; SIGINT and SIGQUIT, which come from
// a person, replace others. It is static, because a handler can reach nothing else.
const std::atomic<int>& watch_signals();

// Restores the default handlers, so that a signal ends the program at once. Call it if an abrupt
// end can no longer lose anything. MPI_Finalize waits for all ranks: if one has died there, the
// launcher's SIGTERM ends the others.
void unwatch_signals();

}  // namespace lockstep::tools
