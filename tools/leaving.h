// SPDX-License-Identifier: MIT
// How the program ends when something was wrong: one line, an exit code, and nobody is waited for.
// What is the same in all processes of a job, such as a flag, is said by one of them.
#pragma once
#include <string>

#include "engine/base/error.h"
#include "tools/exit_codes.h"

namespace lockstep::tools {

// Writes a line to standard error; control characters in it become blanks.
void tell(std::string line);

// "lockstep: <text>" on standard error, as one line whatever `text` holds.
void complain(const std::string& text);

// After a failure nothing may wait for peers that are gone, not even the MPI library's end.
[[noreturn]] void leave(int code);

// Complains and leaves if this process is the one that speaks for its job (or, where files of a
// host are the matter, for its host). The others leave with the same code and say nothing, once the
// launcher ends them: it ends all at the first that fails, and that must not be one that is silent.
[[noreturn]] void leave_together(int code, const std::string& text, bool each_host = false);

// Where an error is one of all processes of a job, as most are once it has begun (who fails tells
// the others), the first process says it. Another waits a moment for the launcher to end it (not at
// all where it did so already), and speaks when it does not: then nobody has.
[[noreturn]] void leave_in_turn(int code, const std::string& text);

// Runs `body`, which does the same in every process of the job; for what it throws see above.
template <class Body>
auto together(Body&& body, bool each_host = false) {
  try {
    return body();
  } catch (const engine::Error& error) {
    leave_together(exit_code(error.code()), message(error), each_host);
  }
}

}  // namespace lockstep::tools
