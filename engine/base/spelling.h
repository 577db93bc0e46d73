// SPDX-License-Identifier: MIT
// Finds the known name that a misspelled one probably means. Pure functions; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::engine {

// Returns the known name most similar to `name`, or an empty string if none is similar. Ignores
// case and treats '_' as '-'. Similar names differ by few letters (changed, inserted, removed or
// swapped), begin alike, or share whole words ("num-epochs", "epochs").
std::string nearest(std::string_view name, const std::vector<std::string>& known);

// Returns "; did you mean NEAREST?", or an empty string.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

// Returns "; did you mean NEAREST? known: A, B", or "; known: A, B".
std::string known_names(std::string_view name, const std::vector<std::string>& known);

}  // namespace lockstep::engine
