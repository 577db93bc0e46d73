// SPDX-License-Identifier: MIT
// An in-memory transport for tests, in which threads play hosts. A send completes only when the
// receiver has copied it, as on a zero-copy wire. Faults are injected from a seed: delays, and the
// loss of a rank at its k-th message. Thread-safe; the fabric must outlive its transports.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "collectives/run/transport.h"

namespace lockstep::collectives {

struct Faults {
  std::uint64_t seed = 0;
  int delayed_of_ten = 0;    // delayed messages out of ten
  int most_delay_polls = 0;  // maximum delay, in polls of the receiver
  // Rank `lost_rank` is lost after it has posted `lost_at_message` messages. Then each of its
  // calls, and each call that involves it, throws Error(kPeerLost).
  int lost_rank = -1;
  int lost_at_message = -1;
};

class MemoryFabric {
 public:
  explicit MemoryFabric(int ranks, Faults faults = {});
  ~MemoryFabric();
  std::unique_ptr<Transport> connect(int rank);
  std::size_t messages() const;  // non-empty messages delivered to all ranks
  std::size_t bytes_sent(int rank) const;
  void lose(int rank);  // takes effect at once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives
