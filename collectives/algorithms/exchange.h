// SPDX-License-Identifier: MIT
// An exchange sums a range over parties: ranks that may each act for other ranks of their host.
// Circle and Doubling are exchanges. exchange_plans.h builds ring, halving-doubling and the
// hierarchical plans from them. All functions are pure.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/algorithms/steps.h"

namespace lockstep::collectives {

struct Party {
  int rank = 0;
  // Ranks for which it acts, including itself. Parties that share a host act only for themselves.
  std::vector<int> group;
};

// Tells where a walk is. All parties walk through the same ranges of a lane in the same order.
struct Place {
  int lane = 0;
  int walks = 0;  // earlier walks in the lane
  std::size_t scratch = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int parties() const = 0;
  virtual int rank(int party) const = 0;
  // Returns the number of messages into which the rounds cut a range.
  virtual int parts() const = 0;
  // Returns the scratch elements that a walk of any party needs.
  virtual std::size_t scratch(Range range) const = 0;
  // Appends a party's steps for one non-empty range. If several walks share a lane, each part of
  // the range must hold a block. The caller makes the group's memory there accessible before.
  // Afterwards the group has the result.
  virtual void walk(Lane& lane, int party, Range range, const Place& place) const = 0;
  // Appends the steps after all walks of a lane. When they are done, no rank accesses the party's
  // memory anymore. `place` is behind the last walk, which went through `last`.
  virtual void end(Lane& lane, int party, Range last, const Place& place) const = 0;
};

}  // namespace lockstep::collectives
