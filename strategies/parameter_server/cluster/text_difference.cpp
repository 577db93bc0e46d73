// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/cluster/text_difference.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::strategies {
namespace {

// Returns the line at `at` and advances `at` to the next line; returns "nothing" after the last
// line.
std::string line(std::string_view text, std::size_t& at) {
  if (at >= text.size()) return "nothing";
  const std::size_t end = std::min(text.find('\n', at), text.size());
  const std::string_view found = text.substr(at, end - at);
  at = end + 1;
  return fmt::format("'{}'", found);
}

std::string_view without_last_newline(std::string_view text) {
  return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
}

// Describes the first line that differs. `numbered`: with its number, for texts of several lines.
std::string difference(std::string_view what, OwnedText one, OwnedText other, bool numbered) {
  std::size_t at_one = 0, at_other = 0;
  std::string left = line(one.text, at_one), right = line(other.text, at_other);
  int number = 1;
  for (; left == right && left != "nothing"; ++number) {
    left = line(one.text, at_one);
    right = line(other.text, at_other);
  }
  return fmt::format("{}: {}{} has {}, {} has {}", what,
                     numbered ? fmt::format("in line {} ", number) : "", one.owner, left,
                     other.owner, right);
}

}  // namespace

std::string first_difference(std::string_view what, OwnedText one, OwnedText other) {
  return one.text == other.text ? std::string() : difference(what, one, other, false);
}

std::string text_difference(std::string_view what, OwnedText one, OwnedText other) {
  if (one.text == other.text) return {};
  return fmt::format("{}\n{}:\n{}\n{}:\n{}", difference(what, one, other, true), one.owner,
                     without_last_newline(one.text), other.owner, without_last_newline(other.text));
}

}  // namespace lockstep::strategies
