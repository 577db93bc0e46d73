// SPDX-License-Identifier: MIT
// Plain dense networks for 28 x 28 images of ten classes. Values; made anew by each call.
#pragma once
#include "engine/nn/graph_spec.h"

namespace lockstep::models {

engine::GraphSpec mlp();       // 784-512-512-10 with ReLU, 669,706 parameters
engine::GraphSpec mlp_wide();  // 784-4096-4096-10 with ReLU, 20,037,642: much to communicate

}  // namespace lockstep::models
