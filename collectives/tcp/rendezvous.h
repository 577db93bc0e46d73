// SPDX-License-Identifier: MIT
// The ranks of a job connect here. The lower rank of a pair dials, the higher one accepts, and both
// prove that they know the key of the job (handshake.h). Only then both count the connection: an
// attempt that one side gave up is never used by the other. Strangers are refused and keep nobody
// waiting; a silent one is closed after two seconds. One thread.
#pragma once
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/tcp/job_key.h"
#include "collectives/tcp/socket.h"

namespace lockstep::collectives::tcp {

struct Met {
  int here = 0, there = 0;
  Socket socket;     // tuned
  std::string host;  // as the other side calls itself
};

struct Invitation {
  std::vector<std::pair<int, int>> pairs;  // rank here, rank there
  std::vector<std::string> address;        // of each rank
  JobKey key;
  std::chrono::milliseconds deadline{};
  std::function<void()> check = {};  // asked all the while: what it throws ends the meeting
};

// Returns the connections of all pairs, in their order. Throws Error(kTimeout) that names who did
// not come, what went wrong at each of its addresses, and who was refused meanwhile;
// Error(kInvalid); and what `check` throws.
std::vector<Met> meet(std::span<const Socket> listeners, const Invitation& invitation);

}  // namespace lockstep::collectives::tcp
