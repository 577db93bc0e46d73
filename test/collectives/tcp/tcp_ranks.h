// SPDX-License-Identifier: MIT
// Ranks as threads, each with a fabric of its own on loopback: what the tests of sockets share.
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

// The transports of `ranks`, all connected with all.
std::vector<std::unique_ptr<Transport>> connect_all(int ranks);

// "127.0.0.1:35012", of a fabric that listens on loopback.
std::string on_loopback(const TcpFabric& fabric);

// Runs `body(rank)` on one thread each and throws the first error.
void on_threads(int ranks, const std::function<void(int)>& body);

// Moves the transport until the request is through; throws Error(kTimeout) after 60 s.
void wait_for(Transport& transport, int request);

// Moves the transport until `condition`; the same.
void wait_until(Transport& transport, const std::function<bool()>& condition);

// Moves the transport until nothing moves any more, for a tenth of a second; the same.
void wait_until_still(Transport& transport);

}  // namespace lockstep::collectives
