// SPDX-License-Identifier: MIT
// Notices at once when a process of this host dies, by whatever death: a thread sleeps on the
// pidfds of all watched processes and calls back with the first that ends. Linux 5.3. One thread of
// its own; add and remove from any thread.
#pragma once
#include <functional>
#include <memory>
#include <string>

namespace lockstep::collectives {

class PeerWatch {
 public:
  // `lost` is called on the watch's thread, once for each peer that ends; must not throw.
  using Lost = std::function<void(const std::string& who, int pid)>;
  explicit PeerWatch(Lost lost);
  ~PeerWatch();  // joins
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  // A process that is gone already counts as lost. Throws Error(kIo) where the kernel has no pidfd.
  void add(const std::string& who, int pid);
  // From here on deaths are expected: the orderly end.
  void release();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives
