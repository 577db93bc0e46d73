// SPDX-License-Identifier: MIT
// Copies a pipeline's batch into a replica's graph: inputs, targets, the id of each row's example,
// and the step's state. Runs on the replica's thread.
#pragma once
#include <stdexcept>

#include "engine/data/pipeline.h"
#include "engine/train/strategy.h"

namespace lockstep::engine {

// Copies `batch`, which has at most Graph::rows() rows. `global_batch`: examples of the step over
// all replicas.
void stage(Replica& replica, const Batch& batch, std::int64_t step, std::size_t global_batch,
           double rate);

// Returns where a number that is not finite came from, as "layer conv2: its output". Checks the
// weights, then runs forward again and checks every layer's output. Used for the error that ends a
// run.
std::string find_not_finite(Replica& replica);

}  // namespace lockstep::engine
