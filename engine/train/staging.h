// SPDX-License-Identifier: MIT
// From a pipeline's batch into a replica's graph: inputs, targets, which example each row is, and
// the words of the step. On the replica's thread.
#pragma once
#include <stdexcept>

#include "engine/data/pipeline.h"
#include "engine/train/strategy.h"

namespace lockstep::engine {

// `batch` has at most Graph::rows() rows; `global_batch` is the examples of the step over all
// replicas.
void stage(Replica& replica, const Batch& batch, std::int64_t step, std::size_t global_batch,
           double rate);

// Where a number that is not finite came from, as "layer conv2: its output": looks at the weights,
// then runs forward once more and looks at every layer's output. For the message of a run that
// stops.
std::string find_not_finite(Replica& replica);

}  // namespace lockstep::engine
