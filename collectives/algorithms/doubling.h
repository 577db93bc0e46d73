// SPDX-License-Identifier: MIT
// Halving-doubling and recursive doubling among parties. Pure.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/algorithms/exchange.h"

namespace lockstep::collectives {

class Doubling final : public Exchange {
 public:
  // The parties' sums are added as a balanced tree in the parties' order. Walks are through parts
  // of `subject`: where it is small every round sends whole ranges (recursive doubling). The
  // request outlives this.
  Doubling(const Request& request, std::vector<Party> parties, Range subject);
  int parties() const override { return int(parties_.size()); }
  int rank(int party) const override { return parties_[std::size_t(party)].rank; }
  int parts() const override { return 1 << levels_; }
  std::size_t scratch(Range range) const override;
  void walk(Lane& lane, int party, Range range, const Place& place) const override;
  void end(Lane& lane, int party, Range last, const Place& place) const override;

 private:
  class Walk;
  // One of 2^levels that exchange. Besides it there may be one party more: the passenger is of its
  // host, and it acts for it; the extra is of another host, and sends it its numbers first.
  struct Core {
    int rank = 0;
    std::vector<int> group;
    int extra = -1, passenger = -1;  // ranks
  };
  void add_cores(int first, int count, int levels);
  int host(int core) const;
  bool together(int core, int other) const { return host(core) == host(other); }
  // Recursive doubling: in this round all give what they have rounded.
  bool gives_rounded(int level) const;
  bool arrives(int core) const;                                    // somebody awaits it
  int arrivals() const { return 1 + levels_ * (whole_ ? 1 : 2); }  // of a walk

  const Request& request_;
  std::vector<Party> parties_;
  std::vector<Core> cores_;
  std::vector<int> core_of_;  // by party
  int levels_ = 0;
  bool whole_;
};

}  // namespace lockstep::collectives
