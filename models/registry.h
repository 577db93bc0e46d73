// SPDX-License-Identifier: MIT
// The models by name: for command lines.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/graph_spec.h"

namespace lockstep::models {

// Throws Error(kInvalid) for an unknown name, with the nearest one and all there are.
engine::GraphSpec build(std::string_view name);
std::vector<std::string> names();
std::string list();  // "lenet5, mlp, ..."

}  // namespace lockstep::models
