// SPDX-License-Identifier: MIT
// Connects the ranks of a job. The lower rank of a pair dials, the higher one accepts, and both
// prove that they know the key of the job (handshake.h). Only then do both count the connection, so
// neither uses an attempt that the other gave up. Strangers are refused and delay nobody; a silent
// one is closed after two seconds. One thread.
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
  std::string host;  // the name that the other side sent
};

struct Invitation {
  std::vector<std::pair<int, int>> pairs;  // {rank here, rank there}
  std::vector<std::string> address;        // one per rank
  JobKey key;
  std::chrono::milliseconds deadline{};
  std::function<void()> check = {};  // polled; what it throws ends the rendezvous
};

// Returns the connections of all pairs, in their order. Throws Error(kTimeout), which names the
// missing ranks, the problem at each of their addresses, and the connections that were refused
// meanwhile. Also throws Error(kInvalid) and what `check` throws.
std::vector<Met> meet(std::span<const Socket> listeners, const Invitation& invitation);

}  // namespace lockstep::collectives::tcp
