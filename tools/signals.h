// SPDX-License-Identifier: MIT
// Signals that end a run become a word that the training loop reads after each step: SIGINT,
// SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGXCPU. A second one of SIGINT and SIGQUIT ends
// the program at once; others may be repeated, as launchers do. Signals that the program was
// started to ignore stay ignored.
#pragma once
#include <atomic>

namespace lockstep::tools {

// Installs the handlers. The word is 0 or the first signal; SIGINT and SIGQUIT, which come from a
// person, replace others. It lives as long as the program, since a handler can reach nothing else.
const std::atomic<int>& watch_signals();

// From now on a signal ends the program at once, as it would have without watch_signals(): for when
// nothing is left that it could spoil. MPI_Finalize waits for all ranks, so where one has died
// there the launcher's SIGTERM is what ends the others.
void unwatch_signals();

}  // namespace lockstep::tools
