// SPDX-License-Identifier: MIT
// LeNet-5 in its classic form (LeCun et al. 1998): tanh, average pools, two padding pixels around
// 28 x 28 images; softmax at the end. 61,706 parameters. A value; made anew by each call.
#pragma once
#include "engine/nn/graph_spec.h"

namespace lockstep::models {

engine::GraphSpec lenet5();

}  // namespace lockstep::models
