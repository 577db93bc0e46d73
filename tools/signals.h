// SPDX-License-Identifier: MIT
// Signals that end a run set an atomic that the training loop reads after each step: SIGINT,
// SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGXCPU. A second SIGINT or SIGQUIT ends the
// program at once; the others may be repeated, as launchers do. Signals that the program was
// started to ignore stay ignored.
//
// The run finishes its step, saves it if it has a folder of checkpoints, and exits with
// exit_code_of_signal. In a job one process is enough: all learn of the signal in the step's sums,
// stop after the same step and save it. An evaluation ends between two batches without a result;
// the evaluation after the last step runs when the same command is started again. mpirun (Open MPI
// 4.1) waits a second after its SIGINT or SIGTERM, sends SIGTERM to the ranks, waits another second
// and kills them. It passes SIGUSR1 on at once.
#pragma once
#include <atomic>
#include <string>
#include <thread>

namespace lockstep::tools {

// Sets the handlers. Returns the atomic: 0 or the first signal; SIGINT and SIGQUIT, which come from
// a person, replace others. It is static, because a handler can reach nothing else.
const std::atomic<int>& watch_signals();

// Says on standard error that a signal has come, if the run has not ended a moment later: a step
// may take long. A thread waits for the signal until this is destroyed.
class SignalAnswer {
 public:
  // `answer`: follows the signal's name, such as "the run ends after this step".
  SignalAnswer(const std::atomic<int>& signal, std::string answer);

 private:
  std::jthread thread_;
};

// Lets the same signals end the program at once, with exit_code_of_signal. Before the first step
// there is nothing to save, and an orderly end would wait for other processes.
void end_at_signals();

// Returns "SIGINT" for its number, or "a signal" for a number that is none of these.
std::string signal_name(int signal);

// Restores the default handlers, so that a signal ends the program at once. Call it if an abrupt
// end can no longer lose anything. MPI_Finalize waits for all ranks: if one has died there, the
// launcher's SIGTERM ends the others.
void unwatch_signals();

}  // namespace lockstep::tools
