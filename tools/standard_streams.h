// SPDX-License-Identifier: MIT
// The standard streams of the program: results go to standard output, whose reader must get them;
// all else goes to standard error, whose reader may stand still or go.
#pragma once
#include <string_view>

namespace lockstep::tools {

// Writes results to standard output at once. Throws Error(kIo) if they cannot be written.
void print(std::string_view text);

// From now on a write to standard error does not wait for a reader that stands still (a pager, a
// terminal on hold); what does not fit into its pipe is lost. Other processes are not affected:
// this process gets an open file description of its own, where the system allows that.
void never_wait_for_standard_error();

// Ignores SIGPIPE and SIGXFSZ, so that a write to a pipe without a reader or beyond a limit of file
// sizes fails with an error that is reported, instead of killing the program.
void ignore_write_signals();

}  // namespace lockstep::tools
