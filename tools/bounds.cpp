// SPDX-License-Identifier: MIT
#include "tools/bounds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>

#include "collectives/cost/size_rules.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/spelling.h"

namespace lockstep::tools {
namespace {

// --help does not print a bound as large as this.
constexpr std::int64_t kVeryMany = 1'000'000'000;
constexpr int kLastPort = 65535;
const std::string kFiles = "<files>";  // among the completions of a flag: names of files

// Returns the number if all of `text` is one.
template <class T>
std::optional<T> parsed(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns a validator. `what`: the allowed values, for the message about a value that is not
// `right`. `brief`: the same for --help.
CLI::Validator validator(std::string what, std::string brief,
                         std::function<bool(const std::string&)> right) {
  auto check = [what = std::move(what), right = std::move(right)](std::string& text) {
    return right(text) ? std::string()
                       : fmt::format("must be {}, not '{}'", what, engine::brief(text));
  };
  return CLI::Validator(std::move(check), std::move(brief));
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return validator(
      fmt::format("a whole number from {} to {}", least, most),
      most < kVeryMany ? fmt::format("{} to {}", least, most) : fmt::format("from {}", least),
      [=](const std::string& text) {
        const auto value = parsed<std::int64_t>(text);
        return value && *value >= least && *value <= most;
      });
}

CLI::Validator number_above(double bound, double most) {
  return validator(fmt::format("a number above {}, at most {}", bound, most),
                   fmt::format("above {}", bound), [=](const std::string& text) {
                     const auto value = parsed<double>(text);
                     return value && *value > bound && *value <= most;
                   });
}

CLI::Validator number_from(double least, double most) {
  return validator(fmt::format("a number from {} to {}", least, most),
                   fmt::format("from {}", least), [=](const std::string& text) {
                     const auto value = parsed<double>(text);
                     return value && *value >= least && *value <= most;
                   });
}

std::optional<std::pair<int, int>> ports_of(const std::string& text) {
  const std::size_t dash = text.find('-');
  const auto first = parsed<int>(text.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parsed<int>(text.substr(dash + 1));
  if (!first || !last || *first < 1 || *first > *last || *last > kLastPort) return std::nullopt;
  return std::pair(*first, *last);
}

CLI::Validator port_range() {
  return validator(
      fmt::format("a port or a range of ports such as 40000-40100, from 1 to {}", kLastPort),
      "such as 40000-40100", [](const std::string& text) { return ports_of(text).has_value(); });
}

std::optional<Interval> interval_of(const std::string& text) {
  if (const auto steps = parsed<std::int64_t>(text)) {
    if (*steps < 0 || *steps > kVeryMany) return std::nullopt;
    return Interval{*steps, 0};
  }
  constexpr std::pair<char, double> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}};
  for (const auto& [unit, seconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto count = parsed<double>(text.substr(0, text.size() - 1));
    if (count && *count > 0 && *count * seconds <= kVeryMany) return Interval{0, *count * seconds};
  }
  return std::nullopt;
}

CLI::Validator steps_or_time() {
  return validator(
      fmt::format("a number of steps from 0 to {}, or a time such as 90s, 10m or 2h", kVeryMany),
      "e.g. 90s, 10m or 2h; a number alone: steps",
      [](const std::string& text) { return interval_of(text).has_value(); });
}

CLI::Validator byte_size(std::size_t least, std::size_t most, std::size_t plain,
                         const std::string& word) {
  const std::string instead = word.empty() ? "" : word + " or ";
  const std::string unit = plain == 1 ? "bytes" : "MiB";
  return validator(
      fmt::format("{}a size such as 64k, 64KiB or 4MiB, from {} to {} (a number alone: {})",
                  instead, collectives::size_text(least), collectives::size_text(most), unit),
      fmt::format("{}e.g. 64k or 4MiB; alone: {}", instead, unit), [=](const std::string& text) {
        if (!word.empty() && text == word) return true;
        try {
          const std::size_t bytes = collectives::parse_size(text, plain);
          return bytes >= least && bytes <= most;
        } catch (const engine::Error&) {
          return false;
        }
      });
}

CLI::Validator file_name(const std::string& what) {
  return with_completions(
      validator("the name of " + what, "", [](const std::string& text) { return !text.empty(); }),
      {kFiles});
}

CLI::Validator svg_file() {
  return with_completions(
      validator("the name of a file for SVG, such as a.svg", "",
                [](const std::string& text) {
                  return !text.empty() &&
                         std::ranges::none_of(
                             std::array{".png", ".pdf", ".jpg", ".jpeg", ".gif"},
                             [&](const char* other) { return text.ends_with(other); });
                }),
      {kFiles});
}

Synonyms dtype_synonyms() {
  return {{"bf16", "bfloat16"}, {"double", "float64"}, {"float", "float32"}, {"fp16", "float16"},
          {"fp32", "float32"},  {"half", "float16"},   {"int", "int32"}};
}

CLI::Validator one_of(std::vector<std::string> words, const Synonyms& synonyms) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    list += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
  }
  auto check = [list, words, synonyms](std::string& text) {
    if (std::ranges::find(words, text) != words.end()) return std::string();
    const auto known = synonyms.find(text);
    return fmt::format("must be {}, not '{}'{}", list, engine::brief(text),
                       known == synonyms.end() ? engine::did_you_mean(text, words)
                                               : fmt::format("; did you mean {}?", known->second));
  };
  return with_completions(CLI::Validator(std::move(check), list), words);
}

// A validator's name is free for this: the parser looks validators up by their names, and never
// prints them.
CLI::Validator with_completions(CLI::Validator validator, const std::vector<std::string>& values) {
  return std::move(validator.name(fmt::format("{}", fmt::join(values, " "))));
}

CLI::Validator suggested(const std::vector<std::string>& values) {
  return with_completions(CLI::Validator([](std::string&) { return std::string(); }, ""), values);
}

Completions completions_of(CLI::Option& option) {
  Completions found;
  try {
    for (int i = 0;; ++i)  // until the parser throws
      for (const std::string& word : CLI::detail::split_up(option.get_validator(i)->get_name())) {
        if (word == kFiles)
          found.files = true;
        else
          found.values.push_back(word);
      }
  } catch (const CLI::OptionNotFound&) {
    return found;
  }
}

}  // namespace lockstep::tools
