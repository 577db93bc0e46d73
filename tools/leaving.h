// SPDX-License-Identifier: MIT
// Ends the program after an error: one line, an exit code, and no wait for others. An error that is
// the same in all processes of a job, such as a wrong flag, is reported by one of them.
#pragma once
#include <string>

#include "engine/base/error.h"
#include "tools/exit_codes.h"

namespace lockstep::tools {

// Writes a line to standard error; control characters in it become blanks.
void tell(std::string line);

// Writes "lockstep: <text>" to standard error, as one line even if `text` has several.
void complain(const std::string& text);

// Ends the process at once. After a failure it must not wait for peers that are gone, not even in
// MPI_Finalize.
[[noreturn]] void leave(int code);

// Returns whether this process prints what all processes of its job (or, `each_host`, of its host)
// would print: the first does, or each if they have terminals or command lines of their own.
bool speaks_for_all(bool each_host = false);

// Complains and leaves if this process speaks for its job (or, if the error concerns files of a
// host, for its host). The others wait for the launcher to end them and leave silently with the
// same code. The launcher ends all processes at the first failure, which must not be a silent one.
[[noreturn]] void leave_together(int code, const std::string& text, bool each_host = false);

// Leaves after an error of the whole job; most errors are of this kind once the job has begun,
// because a failing process notifies the others. The first process reports the error. Another
// process waits a moment for the launcher to end it, and reports the error if the launcher does
// not.
[[noreturn]] void leave_in_turn(int code, const std::string& text);

// Leaves after other ranks were lost or late, with one line of the job: the first process that is
// left reports the error, and the launcher then ends the others. They report it a moment later if
// it does not.
[[noreturn]] void leave_with_survivors(int code, const engine::Error& error);

// Runs `body`, which does the same in every process of the job. An error that it throws ends the
// program with leave_together.
template <class Body>
auto together(Body&& body, bool each_host = false) {
  try {
    return body();
  } catch (const engine::Error& error) {
    leave_together(exit_code(error.code()), message(error), each_host);
  }
}

}  // namespace lockstep::tools
