// SPDX-License-Identifier: MIT
// Predicted times of the sums and updates of a training step for both ways to update. Fused: as
// soon as a sum is complete its weight is updated, and the weight is sent. Separate: all ranks get
// the sums, and then each rank updates all weights in another pass over gradients, weights and
// optimizer state. The simulator counts the bytes that either way moves through memory and over the
// wire.
//
// A pure function of topology and sizes, so ranks with the same costs get the same result.
// Thread-safe. Costs some ten simulations per size (collectives/cost/planner.h), a tenth of a
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

// Holds one way: a sum, whose algorithm the planner chooses, and the steps after it.
struct UpdateWay {
  collectives::Choices sums;
  std::vector<collectives::Choices> after = {};  // the same for every algorithm

  // Returns the predicted time of a bucket: its sum and all later steps, sequentially.
  double seconds(std::size_t bytes) const;
};

struct StepPrices {
  // Its sums also serve for the sums of a step that are not buckets.
  UpdateWay separate;
  std::optional<UpdateWay> fused;  // none: no buckets were asked for
};

// Holds the question to the planner. Sizes are in bytes and ascend.
struct StepQuestion {
  // Sums whose algorithm is to be chosen, including those of `buckets`.
  std::vector<std::size_t> sums;
  // Sums with an update, whose time is predicted for both ways.
  std::vector<std::size_t> buckets;
  std::vector<collectives::SizeRule> rules = {};  // for sums with a requested algorithm
  engine::DType dtype = engine::DType::kFloat32;  // type of weights and gradients
  // Type of gradients between hosts, if it is not their own. Predictions apply it to sums that are
  // not buckets, too.
  std::optional<engine::DType> wire = {};
};

// Divides the work among the processes of a job if `together`, the bootstrap of processes that all
// ask the same, is given (planner.h); null: no division. Requires at least one sum. Rules that
// match a bucket must name algorithms that can fuse the update (for an update that needs a norm:
// direct, with all ranks on one host). Throws plan_all_reduce's errors.
StepPrices price_step(const collectives::Topology& topology, const engine::UpdateRule& rule,
                      const StepQuestion& question, collectives::Bootstrap* together = nullptr);

}  // namespace lockstep::strategies
