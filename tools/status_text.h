// SPDX-License-Identifier: MIT
// The status of a task of a parameter server job (shard_status.h), as lines for people. Pure.
#pragma once
#include <string>

namespace lockstep::tools {

// Returns the lines. `json`: the answer of the task at `address`. Throws Error(kCorrupt), with the
// address, if it is no such object. The status of a task that is not a server is shown unchanged,
// indented.
std::string status_text(const std::string& address, const std::string& json);

}  // namespace lockstep::tools
