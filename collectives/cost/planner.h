// SPDX-License-Identifier: MIT
// Which algorithm for which size, and why: every algorithm is priced by the simulator on the
// topology for sizes from 256 B to 256 MiB, and the cheapest is chosen. Of those that take as long
// (kAlike) it is the simplest, the first in the order of the algorithms. Between hosts a later one
// is preferred if it needs at most half of the rounds, where these take most of the time, or at
// most half of the messages. Of equal plans the first alone is priced. Rules can ask for others. A
// pure function of topology and algorithms, so all ranks of a job choose alike once they hold the
// same measurements; `hash` is for comparing that. Any thread.
//
// Cost: a simulation for each plan that differs, of each size; large clusters are priced from
// smaller pictures of them (price.h). The processes of a job can divide that among themselves.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/registry.h"
#include "collectives/bootstrap/bootstrap.h"
#include "collectives/cost/price.h"
#include "collectives/cost/size_rules.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// Prices take as long as the least of them if they exceed it by at most this factor. Where ranks
// were measured it is larger, since no measurement gives the same numbers twice.
inline constexpr double kAlike = 1.002, kAlikeMeasured = 1.1;

// For one size: what was chosen, and what would have been next.
struct Choice {
  std::size_t bytes = 0;
  std::string algorithm;
  double seconds = 0;     // predicted
  std::string runner_up;  // with another plan than the chosen one's; empty: there is none
  double runner_up_seconds = 0;
  std::string reason;  // one sentence
  bool asked = false;  // by a rule
};

// An algorithm that these ranks cannot use; why: the end of a sentence that begins with its name.
struct Refusal {
  std::string algorithm, why;
};

class Choices {
 public:
  // Any size: between two priced ones the prices go in a straight line, behind the last they go on
  // like that, before the first they stay.
  Choice choose(std::size_t bytes) const;
  std::vector<Choice> table() const;                                          // of the priced sizes
  const std::vector<std::string>& algorithms() const { return algorithms_; }  // that can serve
  const std::vector<Refusal>& refused() const { return refused_; }
  const std::vector<std::size_t>& sizes() const { return sizes_; }
  // By number in `sizes` and `algorithms`.
  const Price& price(std::size_t size, std::size_t algorithm) const {
    return prices_[size][algorithm];
  }
  // The algorithm whose plan for that size is the same as this one's, where that is another; a
  // choice never names two that are the same. Empty: its plan is its own.
  std::string same(std::size_t size, std::size_t algorithm) const;
  // Of what is chosen for every priced size and of the rules, not of times.
  std::uint64_t hash() const;

 private:
  friend Choices plan_all_reduce(const Topology&, std::span<const Algorithm>,
                                 const std::vector<SizeRule>&, std::vector<std::size_t>, Bootstrap*,
                                 const PriceOptions&);
  using Same = std::string_view (*)(const Request&);
  std::vector<std::size_t> first_alike(std::size_t bytes) const;
  std::vector<Price> prices_at(std::size_t bytes) const;
  Request request_;  // but for its subject
  std::vector<std::string> algorithms_;
  std::vector<Same> same_;                       // of each; or null
  std::vector<std::vector<std::size_t>> first_;  // [size]: first_alike
  std::vector<Refusal> refused_;
  std::vector<std::size_t> sizes_;
  std::vector<std::vector<Price>> prices_;  // [size][algorithm]
  std::vector<SizeRule> rules_;
  double alike_ = kAlike;
};

std::string time_text(double seconds);  // "45 ns", "12.3 us", "4.56 ms", "1.20 s"

std::vector<std::size_t> planned_sizes();  // 256 B .. 256 MiB, powers of two

// For the sum of float32. `sizes` ascend. Throws Error(kInvalid) where a rule cannot be obeyed,
// saying why, and where no algorithm can serve these ranks.
//
// `together`: null, or that of a job whose processes all call this alike. Then it is collective:
// each process prices a part, one exchange hands the prices round, and all end with the same bits
// that each would have found alone. What one process cannot price fails on all of them.
//
// `priced`: sums alone, or with an update inside; then all algorithms have a place for one.
Choices plan_all_reduce(const Topology& topology, std::span<const Algorithm> algorithms,
                        const std::vector<SizeRule>& rules = {},
                        std::vector<std::size_t> sizes = planned_sizes(),
                        Bootstrap* together = nullptr, const PriceOptions& priced = {});

}  // namespace lockstep::collectives
