// SPDX-License-Identifier: MIT
// Where ranks meet before the clock of a benchmark starts. On one host: a flag of each rank, on a
// line of its own, which counts up; every rank waits for all. Between hosts: a sum of one number,
// by halving-doubling, which all leave within a message or two. A ring's sum they would leave one
// after the other: the ring that is timed next would go on where the last one ended, and seem to
// take half of its time.
// Of one thread a rank; collective. Every wait has the deadline of the ranks: Error(kTimeout) names
// who is missing, and a process of this host that dies ends it at once. A rank that is destroyed by
// an exception tells the others (kPeerLost).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/job/host_memory.h"
#include "collectives/job/job.h"
#include "collectives/job/rank_link.h"
#include "engine/base/error.h"
#include "tools/bench/death_watch.h"
#include "tools/bench/rank.h"

namespace lockstep::tools::bench {

class Meeting {
 public:
  explicit Meeting(const Rank& rank);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  void meet();
  // What the ranks meet for from here on, as errors say it.
  void prepare(std::string what);
  // Whether each rank is a process of its own.
  bool of_processes() const { return rank_.job.ranks_are_processes(); }
  // Whether another process of this host says already why all of them end: that somebody did not
  // come, or gave up. The first that asks is told no, and says it.
  bool told_by_another(const engine::Error& error);
  // Nanoseconds of one meeting of ranks 0 and 1 alone, the least of some tries: how far their cores
  // are apart. 0 where they are not two ranks of one host.
  double pair_ns();

 private:
  void flag(std::uint64_t now, int ranks);
  void leave();

  std::string why(std::string_view text) const;

  const Rank rank_;
  std::optional<DeathWatch> deaths_;                      // where ranks are processes
  std::string what_ = "benchmark", purpose_ = "meeting";  // of a wait, where it is between hosts
  collectives::HostMemory memory_;                  // of flags, and whether this host has said why
  std::vector<std::atomic<std::uint64_t>*> flags_;  // of each rank, where all are of one host
  std::unique_ptr<collectives::RankLink> link_;     // else
  std::uint64_t met_ = 0;
  bool left_ = false;  // another has
  int exceptions_;     // on their way when it was made
};

}  // namespace lockstep::tools::bench
