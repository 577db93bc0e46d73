// SPDX-License-Identifier: MIT
#include "collectives/cost/size_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/quantity.h"

namespace lockstep::collectives {
namespace {

using engine::require;

constexpr std::array<std::pair<std::string_view, std::size_t>, 13> kUnits{
    {{"b", 1},
     {"k", 1 << 10},
     {"m", 1 << 20},
     {"g", 1 << 30},
     {"t", std::size_t(1) << 40},
     {"kib", 1 << 10},
     {"mib", 1 << 20},
     {"gib", 1 << 30},
     {"tib", std::size_t(1) << 40},
     {"kb", 1'000},
     {"mb", 1'000'000},
     {"gb", 1'000'000'000},
     {"tb", 1'000'000'000'000}}};
constexpr double kMostSize = 0x1p60;

SizeRule parse_rule(std::string_view entry) {
  const std::size_t colon = entry.find(':');
  SizeRule rule;
  rule.algorithm = entry.substr(0, colon);
  require(!rule.algorithm.empty(),
          "'{}' names no algorithm: write NAME or NAME:FROM..TO, e.g. direct:..64k",
          engine::brief(entry));
  if (colon == std::string_view::npos) return rule;
  const std::string_view range = entry.substr(colon + 1);
  const std::size_t dots = range.find("..");
  require(dots != std::string_view::npos, "'{}' has no range: write {}:FROM..TO, e.g. {}:..64k",
          engine::brief(entry), engine::brief(rule.algorithm), engine::brief(rule.algorithm));
  const std::string_view from = range.substr(0, dots), to = range.substr(dots + 2);
  if (!from.empty()) rule.from = parse_size(from);
  if (!to.empty()) rule.to = parse_size(to);
  require(rule.from < rule.to, "'{}' holds no size: {} is not below {}", engine::brief(entry), from,
          to);
  return rule;
}

}  // namespace

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

std::size_t parse_size(std::string_view text, std::size_t plain) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c)
    unit += char(std::tolower(static_cast<unsigned char>(*c)));
  std::size_t factor = unit.empty() ? plain : 0;
  for (const auto& [name, bytes] : kUnits)
    if (unit == name) factor = bytes;
  const bool whole = std::all_of(text.data(), end, is_digit);
  require(error == std::errc() && is_digit(text[0]) && factor > 0 && (whole || factor > 1),
          "'{}' is no size: write e.g. 65536, 64k, 64KiB or 1.5m", engine::brief(text));
  require(number * double(factor) <= kMostSize, "'{}' bytes are too many", engine::brief(text));
  if (!whole) return std::size_t(number * double(factor));
  std::size_t exact = 0;  // a double may have too few digits
  std::from_chars(text.data(), end, exact);
  return exact * factor;
}

std::string size_text(std::size_t bytes) {
  static constexpr std::array<std::pair<std::string_view, int>, 3> kNames{
      {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}};
  for (const auto& [name, shift] : kNames) {
    const std::size_t unit = std::size_t(1) << shift;
    if (bytes >= unit && bytes % unit == 0) return fmt::format("{} {}", bytes >> shift, name);
  }
  return engine::count_text(bytes, "byte");
}

std::vector<SizeRule> parse_size_rules(std::string_view text) {
  std::vector<SizeRule> rules;
  if (text.empty() || text == "auto") return rules;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    SizeRule rule = parse_rule(without_blanks(text.substr(at, comma - at)));
    for (const SizeRule& other : rules) {
      require(rule.from >= other.to || other.from >= rule.to, "'{}': {} and {} both want {}",
              engine::brief(text), other.algorithm, rule.algorithm,
              size_text(std::max(rule.from, other.from)));
    }
    rules.push_back(std::move(rule));
    at = comma + 1;
  }
  std::erase_if(rules, [](const SizeRule& rule) { return rule.algorithm == "auto"; });
  return rules;
}

}  // namespace lockstep::collectives
