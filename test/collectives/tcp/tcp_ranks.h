// SPDX-License-Identifier: MIT
// Ranks as threads, each with its own fabric on loopback, for the tests of sockets.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/tcp/tcp_transport.h"

namespace lockstep::collectives {

inline const JobKey kTestKey{"test", std::string(32, 'k')};
inline const TcpOptions kLoopback{.interface = "lo"};

// Returns the transports of `ranks` ranks, all connected with each other.
std::vector<std::unique_ptr<Transport>> connect_all(int ranks);

// Returns the address of a fabric that listens on loopback, such as "127.0.0.1:35012".
std::string on_loopback(const TcpFabric& fabric);

// Runs `body(rank)` on one thread per rank and throws the first error.
void on_threads(int ranks, const std::function<void(int)>& body);

// Moves the transport until the request is complete. Throws Error(kTimeout) after 60 s.
void wait_for(Transport& transport, int request);

// Moves the transport until `condition` holds. Throws Error(kTimeout) after 60 s.
void wait_until(Transport& transport, const std::function<bool()>& condition);

// Moves the transport until nothing has moved for a tenth of a second. Throws Error(kTimeout) after
// 60 s.
void wait_until_still(Transport& transport);

}  // namespace lockstep::collectives
