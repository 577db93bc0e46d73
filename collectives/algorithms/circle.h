// SPDX-License-Identifier: MIT
// A ring of parties in the given order. All functions are pure.
#pragma once
#include <vector>

#include "collectives/algorithms/exchange.h"

namespace lockstep::collectives {

class Circle final : public Exchange {
 public:
  // `request` must outlive the object.
  Circle(const Request& request, std::vector<Party> parties);
  int parties() const override { return int(parties_.size()); }
  int rank(int position) const override { return at(position).rank; }
  int parts() const override { return parties(); }
  std::size_t scratch(Range range) const override;
  void walk(Lane& lane, int position, Range range, const Place& place) const override;
  void end(Lane& lane, int position, Range last, const Place& place) const override;

 private:
  class Walk;
  const Party& at(int position) const;  // modulo parties()
  bool within(int position) const;      // the next party is on the same host
  int rounds() const { return 2 * (parties() - 1); }

  const Request& request_;
  std::vector<Party> parties_;
};

}  // namespace lockstep::collectives
