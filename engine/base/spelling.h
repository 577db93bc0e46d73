// SPDX-License-Identifier: MIT
// Finds the known name that a misspelled one probably means. Pure functions; any thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::engine {

// Returns the known name that is most like `name`, or an empty string if none is alike. Case does
// not count, nor does '_' for '-'. Alike are names with few letters changed, inserted, removed or
// swapped, names that begin alike, and names that share whole words ("num-epochs", "epochs").
std::string nearest(std::string_view name, const std::vector<std::string>& known);

// Returns "; did you mean NEAREST?", or an empty string.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

// Returns "; did you mean NEAREST? known: A, B", or "; known: A, B".
std::string known_names(std::string_view name, const std::vector<std::string>& known);

}  // namespace lockstep::engine
