// SPDX-License-Identifier: MIT
// Turns the flags of `lockstep train` into an optimizer and a loss.
#pragma once
#include "engine/nn/graph_spec.h"
#include "engine/optim/optimizer.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

// Throws Error(kInvalid) for flags of another optimizer, and for flags without effect. lars has no
// --clip, its update is always separate, and parameter servers refuse it.
void check_optimizer(const TrainFlags& f);
// Returns the optimizer. Throws Error(kInvalid) for a number out of range.
engine::optim::Optimizer choose_optimizer(const TrainFlags::Optimizer& f);
// Applies --label-smoothing to the model's loss. Throws Error(kInvalid) if `smoothing` is out of
// range, or if the loss is not softmax cross-entropy. A run resumes only with the same smoothing.
void smooth_labels(engine::GraphSpec& graph, double smoothing);

}  // namespace lockstep::tools
