// SPDX-License-Identifier: MIT
// Choice between communication threads, one per replica, and communication by the computing
// threads, between layers and while they wait. Pure; thread-safe.
//
// Communication threads cost nothing if cores are idle. Otherwise they still pay off for long
// messages to other hosts. Between two polls of a computing thread the wire moves only what the
// system's buffers hold and then stalls, although moving it costs little. With several replicas
// they do not pay off: a thread that also waits for other replicas of its host polls too often.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace lockstep::strategies {

// Describes the load of one host in a step.
struct CommunicationLoad {
  std::size_t cores = 1, replicas = 1;
  std::size_t threads = 1;  // library threads per replica
  // Bytes to other hosts, of the local rank that sends most.
  std::size_t sent = 0;
  // An arriving message wakes the transport from sleep.
  bool wakes = true;
  std::optional<bool> asked = {};
};

struct CommunicationThreads {
  bool own = false;
  std::string why;  // a clause without a period

  // Exceeds the bytes that the system buffers per connection, which grow to some megabytes.
  static constexpr std::size_t kHeld = std::size_t(8) << 20;
};
CommunicationThreads communication_threads(const CommunicationLoad& load);

}  // namespace lockstep::strategies
