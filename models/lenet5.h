// SPDX-License-Identifier: MIT
// LeNet-5 in its classic form (LeCun et al. 1998): tanh, average pooling, and softmax at the end.
// 28 x 28 images are padded by two pixels. 61,706 parameters. A value; each call builds a new one.
#pragma once
#include "engine/nn/graph_spec.h"

namespace lockstep::models {

engine::GraphSpec lenet5();

}  // namespace lockstep::models
