// SPDX-License-Identifier: MIT
#include "strategies/synchronous/algorithm_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "engine/base/quantity.h"

namespace lockstep::strategies {

std::string rules_text(const std::map<std::size_t, std::string>& chosen) {
  std::string text, before;
  for (const auto& [bytes, name] : chosen) {
    if (name == before) continue;
    text += before.empty() ? name + ":.." : fmt::format("{},{}:{}..", bytes, name, bytes);
    before = name;
  }
  return text.ends_with(":..") ? before : text;
}

std::string prediction(const collectives::Choice& choice, bool with_update) {
  if (choice.runner_up.empty()) return {};
  return fmt::format("{}{}: {} predicted ({}: {}, {})", engine::bytes_text(double(choice.bytes)),
                     with_update ? " with update" : "", collectives::time_text(choice.seconds),
                     choice.runner_up_seconds < choice.seconds ? "about the same" : "next",
                     choice.runner_up, collectives::time_text(choice.runner_up_seconds));
}

std::string counted(const std::vector<std::string>& algorithms) {
  std::string text;
  std::set<std::string> seen;
  for (const std::string& name : algorithms) {
    if (!seen.insert(name).second) continue;
    const auto count = std::size_t(std::count(algorithms.begin(), algorithms.end(), name));
    if (count == algorithms.size()) return name;
    text += text.empty() ? fmt::format("{} for {}", name, engine::count_text(count, "bucket"))
                         : fmt::format(" and {} for {}", name, count);
  }
  return text;
}

}  // namespace lockstep::strategies
