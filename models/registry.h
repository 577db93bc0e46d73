// SPDX-License-Identifier: MIT
// The models by name, for command lines.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/graph_spec.h"

namespace lockstep::models {

struct BuildOptions {
  bool synchronised = false;  // batch norm over all replicas together
};
// Builds a model. Throws Error(kInvalid) for an unknown name, with the nearest and all known names,
// and for an option that the model does not support.
engine::GraphSpec build(std::string_view name);
engine::GraphSpec build(std::string_view name, BuildOptions options);
std::vector<std::string> names();
std::string list();  // "lenet5, mlp, ..."

}  // namespace lockstep::models
