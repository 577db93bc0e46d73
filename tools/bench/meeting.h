// SPDX-License-Identifier: MIT
// Barrier of the ranks before the clock of a benchmark starts. On one host each rank increments a
// flag on its own cache line and waits for all flags. Between hosts the ranks sum one number by
// halving-doubling, which all of them leave within a message or two. A ring's sum is unsuitable,
// because the ranks leave it one after the other. The next timed ring would continue behind it and
// seem to take half its time. One thread per rank; collective. Every wait has the deadline of the
// ranks. Error(kTimeout) names a missing rank, and the death of a process of this host ends the
// wait at once. A rank whose Meeting is destroyed by an exception notifies the others (kPeerLost).
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
  // Sets the purpose of subsequent meetings, for error messages.
  void prepare(std::string what);
  // Returns whether each rank is a process of its own.
  bool of_processes() const { return rank_.job.ranks_are_processes(); }
  // Returns whether another process of this host already reports why all of them end: a rank is
  // missing, or gave up. The first caller gets false, and reports it.
  bool told_by_another(const engine::Error& error);
  // Returns the nanoseconds of one meeting of ranks 0 and 1 alone, the least of several tries. It
  // tells how far their cores are apart. Returns 0 if they are not two ranks of one host.
  double pair_ns();

 private:
  void flag(std::uint64_t now, int ranks);
  void leave();

  std::string why(std::string_view text) const;

  const Rank rank_;
  std::optional<DeathWatch> deaths_;                      // empty if ranks are threads
  std::string what_ = "benchmark", purpose_ = "meeting";  // names in errors of waits
  collectives::HostMemory memory_;                  // flags; control block: an error is reported
  std::vector<std::atomic<std::uint64_t>*> flags_;  // one per rank; empty with several hosts
  std::unique_ptr<collectives::RankLink> link_;     // null on one host
  std::uint64_t met_ = 0;
  bool left_ = false;  // another rank gave up
  int exceptions_;     // uncaught at construction
};

}  // namespace lockstep::tools::bench
