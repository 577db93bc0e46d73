// SPDX-License-Identifier: MIT
#include "engine/base/spelling.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace lockstep::engine {
namespace {

constexpr std::size_t kLongestName = 64;  // longer names are truncated
constexpr std::size_t kWord = 3;          // fewest letters of a shared word or prefix

std::string plain(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Returns the optimal string alignment distance: letters that are changed, inserted, removed, or
// swapped with their neighbor.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      const std::size_t changed = table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      table[i][j] = std::min({changed, table[i - 1][j] + 1, table[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

// Returns whether at most two of five letters change.
bool few(std::size_t changes, std::size_t letters) {
  return 5 * changes <= 2 * letters;
}

// Returns whether `part` is one or several whole words of `whole`, which '-' separates.
bool has_words(const std::string& whole, const std::string& part) {
  return part.size() >= kWord && ('-' + whole + '-').find('-' + part + '-') != std::string::npos;
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  const std::string wanted = plain(name.substr(0, kLongestName));
  if (wanted.empty()) return {};
  std::string best;
  std::size_t least = kLongestName;
  for (const std::string& one : known) {
    const std::size_t changes = distance(wanted, plain(one));
    if (changes < least && few(changes, std::max(wanted.size(), one.size())))
      least = changes, best = one;
  }
  if (!best.empty()) return best;
  const auto first = [&](auto alike) {
    const auto found = std::ranges::find_if(known, alike);
    return found == known.end() ? std::string() : *found;
  };
  if (wanted.size() >= kWord)
    best = first([&](const std::string& one) { return plain(one).starts_with(wanted); });
  if (best.empty())
    best = first([&](const std::string& one) { return has_words(wanted, plain(one)); });
  if (best.empty())
    best = first([&](const std::string& one) { return has_words(plain(one), wanted); });
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string one = nearest(name, known);
  return one.empty() ? one : "; did you mean " + one + "?";
}

std::string known_names(std::string_view name, const std::vector<std::string>& known) {
  const std::string hint = did_you_mean(name, known);
  return fmt::format("{} known: {}", hint.empty() ? ";" : hint, fmt::join(known, ", "));
}

}  // namespace lockstep::engine
