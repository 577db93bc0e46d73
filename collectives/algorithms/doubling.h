// SPDX-License-Identifier: MIT
// Halving-doubling and recursive doubling among parties, of which each is a rank that may act for
// others of its host. Pure.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/algorithms/steps.h"

namespace lockstep::collectives {

struct Party {
  int rank = 0;
  std::vector<int> group;  // for whom it acts, on its host, itself among them
};

class Doubling {
 public:
  // The parties' sums are added as a balanced tree in the parties' order. `whole`: every round
  // sends whole ranges (recursive doubling). The request outlives this.
  Doubling(const Request& request, const std::vector<Party>& parties, bool whole);

  // Where a walk stands: all parties walk through the same ranges in the same order in a lane.
  struct Place {
    int lane = 0;
    int walks = 0;  // that stand before it in the lane
    std::size_t scratch = 0;
  };
  // What a party does with one range that is not empty. Before it, its group may be read and
  // written there. After it the group has the result.
  void walk(Lane& lane, int party, Range range, const Place& place) const;
  // After all walks of a lane: nobody reads or writes the party's memory any more.
  void end(Lane& lane, int party, const Place& place) const;

  std::size_t scratch(Range range) const;     // elements that a walk needs, of any party
  int parts() const { return 1 << levels_; }  // into which the rounds cut a range

 private:
  class Walk;
  // One of 2^levels that exchange. Besides it there may be one party more: the passenger is of its
  // host, and it acts for it; the extra is of another host, and sends it its numbers first.
  struct Core {
    int rank = 0;
    std::vector<int> group;
    int extra = -1, passenger = -1;  // ranks
  };
  int host(int core) const;
  bool together(int core, int other) const { return host(core) == host(other); }
  bool arrives(int core) const;                                    // somebody awaits it
  int arrivals() const { return 1 + levels_ * (whole_ ? 1 : 2); }  // of a walk
  void add_cores(const std::vector<Party>& parties, int first, int count, int levels);

  const Request& request_;
  std::vector<Party> parties_;
  std::vector<Core> cores_;
  std::vector<int> core_of_;  // by party
  int levels_ = 0;
  bool whole_;
};

// Below this, ranges are sent whole: a message of so few bytes takes its latency and hardly less
// when it is halved, and half the rounds are half the latencies.
inline constexpr std::size_t kDoublingBytes = std::size_t(16) << 10;

}  // namespace lockstep::collectives
