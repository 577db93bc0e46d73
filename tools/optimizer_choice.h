// SPDX-License-Identifier: MIT
// From the flags of `lockstep train` to an optimizer and to the loss that it makes small.
#pragma once
#include "engine/nn/graph_spec.h"
#include "engine/optim/optimizer.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

// Throws Error(kInvalid) for flags that are of another optimizer, or change nothing.
void check_optimizer(const TrainFlags& f);
// Throws Error(kInvalid) for a number that makes no sense.
engine::optim::Optimizer choose_optimizer(const TrainFlags::Optimizer& f);
// --label-smoothing: the model's loss with it. Throws Error(kInvalid) for a part that makes no
// sense, and where the model's loss is not of labels.
void smooth_labels(engine::GraphSpec& graph, double smoothing);

}  // namespace lockstep::tools
