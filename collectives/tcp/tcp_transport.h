// SPDX-License-Identifier: MIT
// Messages between hosts over own sockets and poll. A rank keeps one connection to each rank that
// it exchanges messages with; a dead peer is an end of file at once, silence ends by keep-alive and
// TCP_USER_TIMEOUT. Connections are accepted only with a random key that the bootstrap spread, 32
// bytes, compared in constant time; others are closed. Frames carry tag and length; a length that
// was not posted is an error and takes no memory.
//
// How full the wire gets, and at what cost: collectives/README.md.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/transport.h"

namespace lockstep::collectives {

// One process's listening socket and the way to all its ranks' connections.
class TcpFabric {
 public:
  // Listens on all interfaces, on a port that the system picks. Throws Error(kIo).
  TcpFabric();
  ~TcpFabric();
  // "10.0.0.1,192.168.0.1:35012", the addresses of this host but loopback (loopback alone where
  // there is nothing else): for the bootstrap.
  std::string address() const;
  // Connects the ranks of this process with those of others: `pairs` of {rank here, rank there};
  // the lower rank of a pair connects, the higher accepts. `address[rank]` as above. Element i of
  // the result is the transport of ranks[i]. Throws Error(kTimeout) naming who did not come.
  std::vector<std::unique_ptr<Transport>> connect(const std::vector<int>& ranks,
                                                  const std::vector<std::pair<int, int>>& pairs,
                                                  const std::vector<std::string>& address,
                                                  const std::string& key,
                                                  std::chrono::milliseconds deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives
