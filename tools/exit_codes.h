// SPDX-License-Identifier: MIT
// How the program ends; documented in README.md. From sysexits.h where there is one.
#pragma once
#include <string>

#include "engine/base/error.h"

namespace lockstep::tools {

enum ExitCode : int {
  kDone = 0,
  kUsage = 64,     // flags, model, data or cluster that cannot be
  kBadData = 65,   // a file is not what it says
  kDefect = 70,    // an error that lockstep did not expect
  kSystem = 74,    // files are missing, refuse or are another run's; memory or a device refused
  kTryAgain = 75,  // another process was lost or late: start again, and it goes on
};
ExitCode exit_code(engine::Code code);

// The error's text, and the flag of the option that it is about: "keep 2 at most (--keep)".
std::string message(const engine::Error& error);

// After a signal of signals.h, for which the step was finished, and saved where there is a folder:
// 128 and the signal's number, as shells have it.
int exit_code_of_signal(int signal);

}  // namespace lockstep::tools
