// SPDX-License-Identifier: MIT
// The transport of tests: threads that play hosts. A send ends only when its reader has copied it,
// as a zero-copy wire would. Faults are injected from a seed: delays, and the loss of a peer at its
// k-th message. Thread-safe; the fabric outlives its transports.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "collectives/run/transport.h"

namespace lockstep::collectives {

struct Faults {
  std::uint64_t seed = 0;
  int delayed_of_ten = 0;    // so many of ten messages are held back ...
  int most_delay_polls = 0;  // ... for up to so many polls of their receiver
  int lost_rank = -1;        // this rank ...
  int lost_at_message = -1;  // ... posts so many messages, then every call of it and about it
};                           //     throws Error(kPeerLost)

class MemoryFabric {
 public:
  explicit MemoryFabric(int ranks, Faults faults = {});
  ~MemoryFabric();
  std::unique_ptr<Transport> connect(int rank);
  std::size_t messages() const;  // delivered, not empty, all ranks
  std::size_t bytes_sent(int rank) const;
  void lose(int rank);  // now

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives
