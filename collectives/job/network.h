// SPDX-License-Identifier: MIT
// How messages travel between the hosts of a job. Plain values. On one host nothing of it is used,
// but what `require_possible` finds wrong is refused all the same.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::collectives {

struct Network {
  std::string transport = "auto";  // auto, tcp, mpi; auto is tcp
  // Of tcp. The interface of each host that others reach it by: "eth1"; empty: any but loopback.
  std::string interface = {};
  // Of tcp: the ports that a process listens on while connections are made; 0 and 0: any.
  int first_port = 0, last_port = 0;
};

// Throws Error(kInvalid) for what cannot be on this host: unknown names, ports that are none, the
// options of another transport.
void require_possible(const Network& network);
// "tcp", "mpi"
std::string_view transport_of(const Network& network);
// "own sockets (tcp) over eth1, ports 40000-40100"
std::string sentence(const Network& network);

}  // namespace lockstep::collectives
