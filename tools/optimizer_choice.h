// SPDX-License-Identifier: MIT
// Turns the flags of `lockstep train` into an optimizer and a loss.
#pragma once
#include "engine/nn/graph_spec.h"
#include "engine/optim/optimizer.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

// Throws Error(kInvalid) for flags of another optimizer, and for flags without effect.
void check_optimizer(const TrainFlags& f);
// Returns the optimizer. Throws Error(kInvalid) for a number out of range.
engine::optim::Optimizer choose_optimizer(const TrainFlags::Optimizer& f);
// Applies --label-smoothing to the model's loss. Throws Error(kInvalid) if `smoothing` is out of
// range, or if the loss is not softmax cross-entropy.
void smooth_labels(engine::GraphSpec& graph, double smoothing);

}  // namespace lockstep::tools
