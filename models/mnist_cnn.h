// SPDX-License-Identifier: MIT
// The usual first convolutional network for MNIST: two convolutions, a pool, two dense layers.
// 1,199,882 parameters. A value; each call builds a new one.
#pragma once
#include "engine/nn/graph_spec.h"

namespace lockstep::models {

engine::GraphSpec mnist_cnn();

}  // namespace lockstep::models
