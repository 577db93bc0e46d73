// SPDX-License-Identifier: MIT
// Halving-doubling and recursive doubling among parties. All functions are pure.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/algorithms/exchange.h"

namespace lockstep::collectives {

class Doubling final : public Exchange {
 public:
  // Adds the parties' sums as a balanced tree in the parties' order. Walks cover parts of
  // `subject`. If it is small, every round sends whole ranges (recursive doubling). `request` must
  // outlive the object.
  Doubling(const Request& request, std::vector<Party> parties, Range subject);
  int parties() const override { return int(parties_.size()); }
  int rank(int party) const override { return parties_[std::size_t(party)].rank; }
  int parts() const override { return 1 << levels_; }
  std::size_t scratch(Range range) const override;
  void walk(Lane& lane, int party, Range range, const Place& place) const override;
  void end(Lane& lane, int party, Range last, const Place& place) const override;

 private:
  class Walk;
  // A core is one of the 2^levels parties that exchange. It may serve one more party. A passenger
  // is on its host, and the core acts for it. An extra is on another host and sends its numbers
  // first.
  struct Core {
    int rank = 0;
    std::vector<int> group;
    int extra = -1, passenger = -1;  // ranks
  };
  void add_cores(int first, int count, int levels);
  int host(int core) const;
  bool together(int core, int other) const { return host(core) == host(other); }
  // Returns whether all cores round what they give in this round of recursive doubling.
  bool gives_rounded(int level) const;
  bool arrives(int core) const;                                    // whether another rank awaits it
  int arrivals() const { return 1 + levels_ * (whole_ ? 1 : 2); }  // per walk

  const Request& request_;
  std::vector<Party> parties_;
  std::vector<Core> cores_;
  std::vector<int> core_of_;  // indexed by party
  int levels_ = 0;
  bool whole_;
};

}  // namespace lockstep::collectives
