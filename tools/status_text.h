// SPDX-License-Identifier: MIT
// What a task of a parameter server job says of itself (shard_status.h), as lines for people. Pure.
#pragma once
#include <string>

namespace lockstep::tools {

// `json`: what the task at `address` answered. Throws Error(kCorrupt) naming the address where it
// is no such object. The status of a task that is no server is shown as it came, indented.
std::string status_text(const std::string& address, const std::string& json);

}  // namespace lockstep::tools
