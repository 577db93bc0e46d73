// SPDX-License-Identifier: MIT
// Notices at once when a process of this host dies, by whatever death: a thread sleeps on the
// pidfds of all watched processes and calls back with the first that ends. Linux 5.3. One thread of
// its own; add and remove from any thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::collectives {

// A process and its ranks, which follow each other.
struct PeerProcess {
  std::vector<int> ranks;
  int pid = 0;
};
// "rank 2", "ranks 4 to 7"; "this process" where it has none.
std::string name(const PeerProcess& peer);
// Error(kPeerLost) with the peer's ranks: "rank 2 (process 4711) died", with `prefix` before it and
// `suffix` behind.
engine::Error death(const PeerProcess& peer, std::string_view prefix = {},
                    std::string_view suffix = {});

class PeerWatch {
 public:
  // `lost` is called on the watch's thread, once for each peer that ends; must not throw.
  using Lost = std::function<void(const PeerProcess& peer)>;
  explicit PeerWatch(Lost lost);
  ~PeerWatch();  // joins
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  // A process that is gone already counts as lost. Throws Error(kIo) where the kernel has no pidfd.
  void add(const PeerProcess& peer);
  // From here on deaths are expected: the orderly end.
  void release();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives
