// SPDX-License-Identifier: MIT
// The small convolutional network that every framework trains on MNIST first: two convolutions, a
// pool, two dense layers. 1,199,882 parameters. A value; made anew by each call.
#pragma once
#include "engine/nn/graph_spec.h"

namespace lockstep::models {

engine::GraphSpec mnist_cnn();

}  // namespace lockstep::models
