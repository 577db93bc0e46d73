// SPDX-License-Identifier: MIT
// Two tasks must agree on something that both can write as lines of text: what to say where they do
// not. Pure; any thread.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::strategies {

struct OwnedText {
  std::string_view owner;  // "the chief", "worker 1"
  std::string_view text;
};

// Empty where the texts are equal. Else the first line in which they differ, as both have it, and
// then both texts whole, each under its owner's name. `what`: "variables lie differently".
std::string text_difference(std::string_view what, OwnedText one, OwnedText other);
// The same without the texts: for settings, where the line that differs says all.
std::string first_difference(std::string_view what, OwnedText one, OwnedText other);

}  // namespace lockstep::strategies
