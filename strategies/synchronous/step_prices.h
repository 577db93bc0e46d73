// SPDX-License-Identifier: MIT
// What the sums and updates of a training step cost, as the planner prices them: in the two ways in
// which an optimizer's update can be taken. Inside the sums (fused): where a number's sum is whole
// its weight is updated, and then the weight travels. Apart: everybody gets the sums, and then each
// rank passes once more over gradients, weights and optimizer state, to update all weights for
// itself. The simulator counts what either moves through memory and over the wire.
//
// A pure function of topology and sizes, so that all ranks that hold the same costs find the same.
// Any thread. Cost: some ten simulations a size (collectives/cost/planner.h), a tenth of a
// millisecond for two ranks.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "collectives/cost/planner.h"
#include "collectives/topology/topology.h"
#include "engine/ops/reduce.h"

namespace lockstep::strategies {

// One way: a sum, of which the planner chooses the algorithm, and what comes after it.
struct UpdateWay {
  collectives::Choices sums;
  std::vector<collectives::Choices> after = {};  // each for every algorithm alike

  // Of a bucket, predicted: its sum and all that comes after, one behind the other.
  double seconds(std::size_t bytes) const;
};

struct StepPrices {
  UpdateWay separate;              // its sums are those of a step that are not of buckets, too
  std::optional<UpdateWay> fused;  // none: no buckets were asked for
};

// What is to be priced. Sizes are bytes, and ascend.
struct StepQuestion {
  std::vector<std::size_t> sums;     // whose algorithm is to be chosen, and those of `buckets`
  std::vector<std::size_t> buckets;  // whose update is to be priced, too, in both ways
  std::vector<collectives::SizeRule> rules = {};  // of sums whose algorithm is asked for
  engine::DType dtype = engine::DType::kFloat32;  // of weights and gradients
  // In which gradients travel between hosts, where not in theirs. Sums that are not of buckets are
  // priced as if they did so, too.
  std::optional<engine::DType> wire = {};
};

// `together`: null, or that of a job whose processes all ask this alike, and divide the prices
// among themselves (planner.h). At least one sum. Rules that hold a bucket name algorithms that
// have a place for the update (for one that needs a norm: direct, and all ranks are on one host).
// Throws what plan_all_reduce throws.
StepPrices price_step(const collectives::Topology& topology, const engine::UpdateRule& rule,
                      const StepQuestion& question, collectives::Bootstrap* together = nullptr);

}  // namespace lockstep::strategies
