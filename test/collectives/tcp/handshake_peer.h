// SPDX-License-Identifier: MIT
// The other end of a handshake, byte by byte, for tests. Waits last ten seconds at most.
#pragma once
#include <string>
#include <utility>

#include "collectives/tcp/handshake.h"

namespace lockstep::collectives::tcp {

std::pair<Socket, Socket> socket_pair();
// Returns the dialer's and the acceptor's end of a connection to this address of loopback.
std::pair<Socket, Socket> tcp_pair(const std::string& address = "127.0.0.1");

void send_text(const Socket& socket, const std::string& text);
// Returns what has arrived; empty for nothing.
std::string received(const Socket& socket);
// Waits for this many bytes. Returns fewer if the other side closes.
std::string read_text(const Socket& socket, std::size_t bytes);
// Returns whether the other side may still send.
bool is_open(const Socket& socket);

template <class Message>
std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

// Returns the proof of role 0 (dialer), 1 (acceptor) or 2 (confirmation), as handshake.h describes
// it.
std::string proof(char role, const std::string& hello, const std::string& challenge,
                  const std::string& secret);

}  // namespace lockstep::collectives::tcp
