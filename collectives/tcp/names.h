// SPDX-License-Identifier: MIT
// Addresses with names of hosts, which the resolver of the system looks up. Thread-safe. A lookup
// has a thread of its own, since the resolver has no deadline; the thread may outlive the call.
#pragma once
#include <string>

#include "collectives/tcp/socket.h"
#include "engine/base/error.h"

namespace lockstep::collectives::tcp {

struct HostAndPort {
  std::string host;
  int port = 0;
};

// Takes "name:port", "10.0.0.1:port" or "[fd00::1]:port". Throws Error(kInvalid).
HostAndPort host_and_port(const std::string& text);

struct Resolved {
  std::string address;  // to dial (socket.h); empty: not found
  std::string problem;
};
// Looks up the host of such a text, or returns an address of a private socket as it is. Throws
// Error(kInvalid).
Resolved resolved(const std::string& text, engine::Clock::time_point deadline);

// Connects to such an address. Tries again until the deadline, also if the name does not resolve
// yet. Throws Error(kTimeout) with the last problem.
Socket connect_to(const std::string& text, engine::Clock::time_point deadline);

}  // namespace lockstep::collectives::tcp
