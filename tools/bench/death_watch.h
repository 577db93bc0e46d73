// SPDX-License-Identifier: MIT
// Notices at once when another process of this host dies while it takes part in a benchmark: what
// is at work is stopped with a line that names the rank, who waits elsewhere asks, and a process
// that still hangs a moment later, in the exchange of something, ends with that line. Ranks of
// other hosts are seen by their transports. Made by all ranks at once (collective); of one thread
// each, but for its own. What it is given outlives it, or is taken back.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "collectives/job/rank_link.h"
#include "collectives/run/peer_watch.h"

namespace lockstep::tools::bench {

class DeathWatch {
 public:
  explicit DeathWatch(const collectives::Ranks& ranks);
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

  // What is at work from here on; null: nothing.
  void at_work(collectives::RankLink* link);
  // Who died first; nothing: nobody so far.
  std::optional<engine::Error> lost() const;
  bool of_processes() const { return of_processes_; }  // and not of threads of one

 private:
  void died(const engine::Error& what);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  collectives::RankLink* link_ = nullptr;
  std::optional<engine::Error> lost_;
  bool over_ = false, of_processes_ = false;
  std::unique_ptr<collectives::PeerWatch> watch_;  // last: its thread uses the others
};

}  // namespace lockstep::tools::bench
