// SPDX-License-Identifier: MIT
// Whether communication gets threads of its own, one a replica, or the computing threads move it
// between layers and while they wait. Pure; any thread.
//
// Threads of their own cost nothing where cores are idle. Where none is, they still pay with long
// messages to other hosts: between two visits of a computing thread the wire moves no more than the
// system's buffers hold, and then stands still, though it would take the core next to nothing. (Not
// of several replicas: a thread that waits for others of its host, too, looks too often.)
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace lockstep::strategies {

// Of one host and a step.
struct CommunicationLoad {
  std::size_t cores = 1, replicas = 1;
  std::size_t threads = 1;  // of a replica's library
  std::size_t sent = 0;     // bytes to other hosts, by the rank here that sends most
  bool wakes = true;        // the transport ends a sleep when a message comes
  std::optional<bool> asked = {};
};

struct CommunicationThreads {
  bool own = false;
  std::string why;  // a sentence without its end

  // More than the system's buffers hold of a connection, which grow to some megabytes.
  static constexpr std::size_t kHeld = std::size_t(8) << 20;
};
CommunicationThreads communication_threads(const CommunicationLoad& load);

}  // namespace lockstep::strategies
