// SPDX-License-Identifier: MIT
// Planner: chooses the all-reduce algorithm for each size and says why. The simulator predicts the
// time of every algorithm on the topology for sizes from 256 B to 256 MiB, and the fastest is
// chosen. If several are equally fast (kAlike), the first in the order of the algorithms is chosen,
// the simplest. Between hosts a later one is preferred if it needs at most half of the messages. It
// is also preferred if it needs at most half of the rounds and these take most of the time. Only
// the first of equal plans is simulated. Rules can ask for others. The choice is a pure function of
// topology and algorithms, so all ranks with the same measurements choose alike; `hash` serves to
// compare that. Thread-safe.
//
// Cost: a simulation for each distinct plan and size. Times of large clusters are extrapolated from
// smaller ones (price.h). The processes of a job can share this work.
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

// Predicted times count as equal if they exceed the least by at most this factor. For measured
// costs it is larger, since no measurement gives the same numbers twice.
inline constexpr double kAlike = 1.002, kAlikeMeasured = 1.1;

// Describes the choice for one size, and the runner-up.
struct Choice {
  std::size_t bytes = 0;
  std::string algorithm;
  double seconds = 0;     // predicted
  std::string runner_up;  // has another plan; empty: there is none
  double runner_up_seconds = 0;
  std::string reason;  // one sentence
  bool asked = false;  // chosen by a rule
};

// Names an algorithm that these ranks cannot use. `why`: the end of a sentence that begins with its
// name.
struct Refusal {
  std::string algorithm, why;
};

class Choices {
 public:
  // Chooses for any size. Between two planned sizes, predicted times are interpolated linearly.
  // After the last they are extrapolated; before the first they are constant.
  Choice choose(std::size_t bytes) const;
  std::vector<Choice> table() const;  // for the planned sizes
  // Returns the algorithms that can serve these ranks.
  const std::vector<std::string>& algorithms() const { return algorithms_; }
  const std::vector<Refusal>& refused() const { return refused_; }
  const std::vector<std::size_t>& sizes() const { return sizes_; }
  // Takes indices in `sizes` and `algorithms`.
  const Price& price(std::size_t size, std::size_t algorithm) const {
    return prices_[size][algorithm];
  }
  // Returns the earlier algorithm with the same plan for that size, or an empty string if there is
  // none. A choice never names two with the same plan.
  std::string same(std::size_t size, std::size_t algorithm) const;
  // Returns a hash of the choices for all planned sizes and of the rules, not of times.
  std::uint64_t hash() const;

 private:
  friend Choices plan_all_reduce(const Topology&, std::span<const Algorithm>,
                                 const std::vector<SizeRule>&, std::vector<std::size_t>, Bootstrap*,
                                 const PriceOptions&);
  using Same = std::string_view (*)(const Request&);
  std::vector<std::size_t> first_alike(std::size_t bytes) const;
  std::vector<Price> prices_at(std::size_t bytes) const;
  Request request_;  // without its subject
  std::vector<std::string> algorithms_;
  std::vector<Same> same_;                       // per algorithm, or null
  std::vector<std::vector<std::size_t>> first_;  // [size]: first_alike
  std::vector<Refusal> refused_;
  std::vector<std::size_t> sizes_;
  std::vector<std::vector<Price>> prices_;  // [size][algorithm]
  std::vector<SizeRule> rules_;
  double alike_ = kAlike;
};

std::string time_text(double seconds);  // "45 ns", "12.3 us", "4.56 ms", "1.20 s"

std::vector<std::size_t> planned_sizes();  // 256 B .. 256 MiB, powers of two

// Plans sums of float32. `sizes` must ascend. Throws Error(kInvalid) with the reason if a rule
// cannot be obeyed, and if no algorithm can serve these ranks.
//
// `together`: null, or the bootstrap of a job in which all processes make the same call. Then the
// call is collective: each process predicts a part, and one exchange distributes the results. All
// processes end with the same bits that each would have found alone. If one process fails, all
// fail.
//
// `priced`: plain sums, or sums with a fused update. Then all algorithms must support an update.
Choices plan_all_reduce(const Topology& topology, std::span<const Algorithm> algorithms,
                        const std::vector<SizeRule>& rules = {},
                        std::vector<std::size_t> sizes = planned_sizes(),
                        Bootstrap* together = nullptr, const PriceOptions& priced = {});

}  // namespace lockstep::collectives
