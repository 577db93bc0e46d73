// SPDX-License-Identifier: MIT
// Messages between hosts over own sockets and poll. A rank keeps one connection to each rank that
// it exchanges messages with; a dead peer is an end of file at once; silence, of a host or of the
// way to it, ends after some five seconds. Both ends of a connection prove that they know the key
// that the bootstrap spread (handshake.h); all other connections are refused. What follows is
// neither encrypted nor signed. Frames carry tag and length; a message that was not posted yet is
// kept, up to 64 MiB a connection, and not read beyond.
//
// How full the wire gets, and at what cost: collectives/README.md.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/run/transport.h"
#include "collectives/tcp/job_key.h"

namespace lockstep::collectives {

struct TcpOptions {
  std::string interface = {};  // "eth1": its addresses alone; empty: all but loopback
  // Of listening, while connections are made; 0 and 0: the system picks one.
  int first_port = 0, last_port = 0;
};
// Throws Error(kInvalid) for an interface that this host has not, listing those that it has, and
// for ports that are none.
void require_possible(const TcpOptions& options);

// One process's listening sockets and the way to all its ranks' connections.
class TcpFabric {
 public:
  // Listens on the addresses of the interface, or of all but loopback. Throws Error(kIo), and what
  // require_possible throws.
  explicit TcpFabric(const TcpOptions& options = {});
  ~TcpFabric();
  // Returns "10.0.0.1,192.168.0.1:35012" for the bootstrap: the addresses that it listens on, which
  // are 127.0.0.1 alone on a host that has no other.
  std::string address() const;
  // Connects the ranks of this process with those of others: `pairs` of {rank here, rank there};
  // the lower rank of a pair connects, the higher accepts. `address[rank]` as above. Element i of
  // the result is the transport of ranks[i]. Throws Error(kTimeout) naming who did not come, and at
  // once what `check` throws, which is asked all the while. Once:
  // from then on nothing listens. The transports do not need the fabric any more.
  std::vector<std::unique_ptr<Transport>> connect(const std::vector<int>& ranks,
                                                  const std::vector<std::pair<int, int>>& pairs,
                                                  const std::vector<std::string>& address,
                                                  const JobKey& key,
                                                  std::chrono::milliseconds deadline,
                                                  const std::function<void()>& check = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives
