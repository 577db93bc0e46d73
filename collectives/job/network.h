// SPDX-License-Identifier: MIT
// Transport of messages between the hosts of a job. Plain values. A job on one host does not use
// them, but `require_possible` refuses wrong ones all the same.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::collectives {

struct Network {
  std::string transport = "auto";  // auto, tcp, mpi; auto is tcp
  // Interface by which others reach a host, as "eth1"; empty: any but loopback. Only for tcp.
  std::string interface = {};
  // Ports on which a process listens while connections are made; 0 and 0: any. Only for tcp.
  int first_port = 0, last_port = 0;
};

// Throws Error(kInvalid) for values that are impossible on this host: unknown names, invalid ports,
// or options of another transport.
void require_possible(const Network& network);
// Returns "tcp" or "mpi".
std::string_view transport_of(const Network& network);
// Returns a description: "own sockets (tcp) over eth1, ports 40000-40100".
std::string sentence(const Network& network);

}  // namespace lockstep::collectives
