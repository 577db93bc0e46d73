// SPDX-License-Identifier: MIT
// An exchange: parties, each a rank that may act for others of its host, walk through a range of
// the subject and end with its sum. Circle and Doubling are exchanges; ring, halving-doubling and
// the hierarchies are plans made of them (exchange_plans.h). Pure.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/algorithms/steps.h"

namespace lockstep::collectives {

struct Party {
  int rank = 0;
  // For whom it acts, itself among them. Parties that share a host act for themselves alone.
  std::vector<int> group;
};

// Where a walk stands: all parties walk through the same ranges in the same order in a lane.
struct Place {
  int lane = 0;
  int walks = 0;  // that stand before it in the lane
  std::size_t scratch = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int parties() const = 0;
  virtual int rank(int party) const = 0;
  // Into how many messages the rounds cut a range.
  virtual int parts() const = 0;
  // Elements that a walk needs, of any party.
  virtual std::size_t scratch(Range range) const = 0;
  // What a party does with one range that is not empty; where several walks share a lane, each of
  // its parts holds a block. Before it, the party's group may be read and written there. After it
  // the group has the result.
  virtual void walk(Lane& lane, int party, Range range, const Place& place) const = 0;
  // After all walks of a lane: nobody reads or writes the party's memory any more. `place` is
  // behind the last one, which went through `last`.
  virtual void end(Lane& lane, int party, Range last, const Place& place) const = 0;
};

}  // namespace lockstep::collectives
