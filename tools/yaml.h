// SPDX-License-Identifier: MIT
// Writes a JSON value as a YAML document in block style, for manifests. Strings that a reader of
// YAML could take for something else are quoted as in JSON. Equal values give equal text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::tools {

std::string to_yaml(const nlohmann::ordered_json& value);

}  // namespace lockstep::tools
