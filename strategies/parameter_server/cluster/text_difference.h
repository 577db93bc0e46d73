// SPDX-License-Identifier: MIT
// Messages for two tasks that must agree on a text of several lines and do not. Pure; thread-safe.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::strategies {

struct OwnedText {
  std::string_view owner;  // "the chief", "worker 1"
  std::string_view text;
};

// Returns an empty text if the texts are equal. Otherwise it returns the first line that differs,
// in both versions, and then both whole texts under their owners' names. `what`: "variables lie
// differently".
std::string text_difference(std::string_view what, OwnedText one, OwnedText other);
// Returns the same without the whole texts: for settings, the differing line suffices.
std::string first_difference(std::string_view what, OwnedText one, OwnedText other);

}  // namespace lockstep::strategies
