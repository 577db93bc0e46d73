// SPDX-License-Identifier: MIT
// Dense networks for 28 x 28 images of ten classes. mlp_wide has much to communicate. Values; each
// call builds a new one.
#pragma once
#include "engine/nn/graph_spec.h"

namespace lockstep::models {

engine::GraphSpec mlp();       // 784-512-512-10 with ReLU, 669,706 parameters
engine::GraphSpec mlp_wide();  // 784-4096-4096-10 with ReLU, 20,037,642 parameters

}  // namespace lockstep::models
