// SPDX-License-Identifier: MIT
// How ranks get their connections. The lower rank of a pair connects and says hello (key, who, to
// whom); the higher one compares the key in constant time and acknowledges; the lower one confirms.
// Only then both count the connection: an attempt that one side gave up is never used by the other.
// Whoever has a wrong key, or talks something else, is closed without a word; whoever is silent is
// closed after two seconds, and keeps nobody waiting. One thread.
#pragma once
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
  std::string key;                         // kKeyBytes
  std::chrono::milliseconds deadline{};
  std::function<void()> check = {};  // asked all the while: what it throws ends the meeting
};
inline constexpr std::size_t kKeyBytes = 32;

// All pairs, in their order. Throws Error(kTimeout) naming who did not come, Error(kInvalid),
// and what `check` throws.
std::vector<Met> meet(std::span<const Socket> listeners, const Invitation& invitation);

}  // namespace lockstep::collectives::tcp
