// SPDX-License-Identifier: MIT
// Messages between hosts over our own sockets and poll. A rank keeps one connection to each rank
// that it exchanges messages with. A dead peer gives an end of file at once. Silence, of a host or
// of the path to it, ends a connection after some five seconds. Both ends prove that they know the
// key that the bootstrap distributed (handshake.h); all other connections are refused. The data
// that follows is neither encrypted nor signed. Frames carry tag and length. A message that was not
// posted yet is kept, up to 64 MiB per connection, and not read beyond that.
//
// All-reduces of 4 to 64 MiB over four virtual hosts on two cores used 96 to 99 % of links of
// 1 Gbit/s. They took a third to half of the processor time of mpi_transport.h. The handshake does
// not protect the key itself, which the bootstrap carries as MPI carries its messages.
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
  // Ports to listen on while connections are made; 0 and 0: the system picks one.
  int first_port = 0, last_port = 0;
};
// Throws Error(kInvalid) if this host does not have the interface, with a list of those that it
// has, and for invalid ports.
void require_possible(const TcpOptions& options);

// Owns one process's listening sockets and connects all its ranks.
class TcpFabric {
 public:
  // Listens on the addresses of the interface, or on all but loopback. Throws Error(kIo), and what
  // require_possible throws.
  explicit TcpFabric(const TcpOptions& options = {});
  ~TcpFabric();
  // Returns "10.0.0.1,192.168.0.1:35012" for the bootstrap: the addresses that it listens on. On a
  // host that has no other, this is 127.0.0.1 alone.
  std::string address() const;
  // Connects the ranks of this process with those of others. `pairs`: {rank here, rank there}; the
  // lower rank of a pair dials, the higher accepts. `address[rank]`: as above. Element i of the
  // result is the transport of ranks[i]. Throws Error(kTimeout), which names the missing ranks, and
  // at once what `check` throws, which is polled meanwhile. Call it once: from then on nothing
  // listens. The transports do not need the fabric any more.
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
