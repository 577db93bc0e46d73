// SPDX-License-Identifier: MIT
// The models by name: for command lines.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/graph_spec.h"

namespace lockstep::models {

struct BuildOptions {
  bool synchronised = false;  // batch norm over all replicas together
};
// Throws Error(kInvalid) for an unknown name, with the nearest one and all there are, and for an
// option that the model has no place for.
engine::GraphSpec build(std::string_view name, BuildOptions options = {});
std::vector<std::string> names();
std::string list();  // "lenet5, mlp, ..."

}  // namespace lockstep::models
