// SPDX-License-Identifier: MIT
#include "collectives/run/lost_ranks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

namespace lockstep::collectives {
namespace {

constexpr std::array<std::string_view, 4> kLosses{" died", " is gone", " is lost", " has left"};

bool goes_on(char c) {  // a word
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

// Takes what stands at the beginning of the text, where it does.
bool take(std::string_view& text, std::string_view words) {
  if (!text.starts_with(words)) return false;
  text.remove_prefix(words.size());
  return true;
}

std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return {};
  text.remove_prefix(std::size_t(end - text.data()));
  return number;
}

struct Ranks {
  int first = 0, last = 0;
};

// "rank 1 (process 4711) died", "ranks 2 to 3 on host h1 has left": who is lost, where the text
// begins so.
std::optional<Ranks> lost_at_beginning(std::string_view text) {
  if (!take(text, "ranks ") && !take(text, "rank ")) return {};
  const auto first = take_number(text);
  if (!first) return {};
  const auto last = take(text, " to ") ? take_number(text) : first;
  if (!last) return {};
  if (take(text, " (process ")) {
    if (!take_number(text) || !take(text, ")")) return {};
  } else if (take(text, " on host ")) {
    text.remove_prefix(std::min(text.find(' '), text.size()));
  }
  for (const std::string_view loss : kLosses)
    if (text.starts_with(loss) && (text.size() == loss.size() || !goes_on(text[loss.size()])))
      return Ranks{*first, *last};
  return {};
}

}  // namespace

std::vector<int> lost_ranks(const std::string& why, int ranks) {
  std::vector<int> lost;
  for (std::size_t at = why.find("rank"); at != std::string::npos; at = why.find("rank", at + 1)) {
    if (at > 0 && goes_on(why[at - 1])) continue;
    const auto found = lost_at_beginning(std::string_view(why).substr(at));
    if (!found) continue;
    for (int rank = found->first; rank <= std::min(found->last, ranks - 1); ++rank)
      lost.push_back(rank);
  }
  std::sort(lost.begin(), lost.end());
  lost.erase(std::unique(lost.begin(), lost.end()), lost.end());
  return lost;
}

}  // namespace lockstep::collectives
