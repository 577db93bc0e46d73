// SPDX-License-Identifier: MIT
// The standard streams of the program. Results go to standard output, whose reader must get them.
// Everything else goes to standard error, whose reader may stall or go away.
#pragma once
#include <string_view>

namespace lockstep::tools {

// Writes results to standard output at once. Throws Error(kIo) if they cannot be written.
void print(std::string_view text);

// Makes writes to standard error nonblocking, for a reader that stalls (a pager, a terminal on
// hold); output that does not fit into its pipe is lost. Other processes are not affected, because
// this process opens its own file description if the system allows that.
void never_wait_for_standard_error();

// Ignores SIGPIPE and SIGXFSZ. A write to a pipe without a reader, or beyond a file size limit,
// then fails with a reported error instead of killing the program.
void ignore_write_signals();

}  // namespace lockstep::tools
