// SPDX-License-Identifier: MIT
// The exit codes of the program, which exit_meanings() explains. Those that sysexits.h defines are
// taken from it.
#pragma once
#include <span>
#include <string>

#include "engine/base/error.h"

namespace lockstep::tools {

enum ExitCode : int {
  kDone = 0,
  kUsage = 64,
  kBadData = 65,
  kDefect = 70,
  kSystem = 74,
  kTryAgain = 75,
};
ExitCode exit_code(engine::Code code);

// The documentation of one exit code, or of several: "128+N".
struct ExitMeaning {
  const char* code;
  const char* meaning;
};
std::span<const ExitMeaning> exit_meanings();

// Returns the error's text, and the flag of the option that it is about: "keep 2 at most (--keep)".
std::string message(const engine::Error& error);

// Returns the code after a signal of signals.h. The run has finished its step, and saved it if
// there is a folder. After SIGINT, SIGQUIT and SIGTERM, which end a run for good, it is 128 plus
// the signal's number, as in shells. The others are a scheduler's pre-emption, and it is kTryAgain.
int exit_code_of_signal(int signal);

}  // namespace lockstep::tools
