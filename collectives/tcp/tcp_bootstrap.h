// SPDX-License-Identifier: MIT
// Bootstrap over sockets, for jobs that no MPI connects. Process 0 listens at an address that all
// know, and the others connect to it. Both ends prove that they know the job's secret
// (handshake.h), or that they are processes of one user on one host (private_socket.h). Other
// connections are refused and delay nobody. What follows is neither encrypted nor signed.
//
// Names that do not resolve yet, and addresses where nobody listens yet, are tried again until the
// deadline. Processes share a host if they can map each other's memory (shared_hosts.h). The end of
// a process ends the exchanges of all others with Error(kPeerLost), which names it.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/tcp/job_key.h"

namespace lockstep::collectives {

// Holds the text of process 0 that a process manager or a store gives to the others.
struct Announcement {
  std::string address = {};  // "10.0.0.1,fd00::1:35012"
  std::string secret = {};   // empty: all know it
};

struct TcpBootstrapOptions {
  int process = 0, processes = 1;
  // Address of process 0: "name:port", "10.0.0.1:port", or one of `private_address`.
  std::string rendezvous = {};
  // Instead of a rendezvous: called with the announcement of process 0 there, with an empty one in
  // the others, and returns that of process 0 in all of them.
  std::function<Announcement(const Announcement& mine)> announce = {};
  std::string interface = {};                       // whose addresses process 0 uses; empty: all
  JobKey key = {};                                  // not for a private address
  std::chrono::milliseconds start_deadline{60000};  // for all processes to come
  std::chrono::milliseconds deadline{60000};        // of each exchange
};

// Connects the processes; collective. Throws Error(kInvalid) for impossible options, Error(kIo) if
// process 0 cannot listen, and Error(kTimeout), which names the missing processes.
std::unique_ptr<Bootstrap> tcp_bootstrap(const TcpBootstrapOptions& options);

}  // namespace lockstep::collectives
