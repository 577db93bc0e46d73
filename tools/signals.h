// SPDX-License-Identifier: MIT
// SIGINT and SIGTERM become a word that the training loop looks at after each step. A second SIGINT
// ends the program at once; further SIGTERMs change nothing, since launchers repeat them.
#pragma once
#include <atomic>

namespace lockstep::tools {

// Installs the handlers; the word is 0, or SIGINT where it was among the signals, SIGTERM else. It
// lives as long as the program, since a handler can reach nothing else.
const std::atomic<int>& watch_signals();

// From now on a signal ends the program at once, as it would have without watch_signals(): for when
// nothing is left that it could spoil. MPI_Finalize waits for all ranks, so where one has died
// there the launcher's SIGTERM is what ends the others.
void unwatch_signals();

}  // namespace lockstep::tools
