// SPDX-License-Identifier: MIT
// Notices at once if a process of this host dies, in any way. A thread sleeps on the pidfds of all
// watched processes and calls back for each that ends. Needs Linux 5.3. Has one thread.
// Thread-safe.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::collectives {

// Identifies a process and its ranks, which are consecutive.
struct PeerProcess {
  std::vector<int> ranks;
  int pid = 0;
};
// Returns "rank 2" or "ranks 4 to 7", or "this process" if it has no ranks.
std::string name(const PeerProcess& peer);
// Returns Error(kPeerLost) with the peer's ranks: "rank 2 (pid 4711) died", between `prefix`
// and `suffix`.
engine::Error death(const PeerProcess& peer, std::string_view prefix = {},
                    std::string_view suffix = {});

class PeerWatch {
 public:
  // Callback on the watch's thread, once for each peer that ends. It must not throw.
  using Lost = std::function<void(const PeerProcess& peer)>;
  explicit PeerWatch(Lost lost);
  ~PeerWatch();  // joins
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  // Watches a process. One that has ended already counts as lost. Throws Error(kIo) if the kernel
  // has no pidfd.
  void add(const PeerProcess& peer);
  // Ignores deaths from here on, for an orderly end.
  void release();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives
