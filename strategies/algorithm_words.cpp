// SPDX-License-Identifier: MIT
#include "strategies/algorithm_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

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

std::string counted(const std::vector<std::string>& algorithms) {
  std::string text;
  std::set<std::string> seen;
  for (const std::string& name : algorithms) {
    if (!seen.insert(name).second) continue;
    const auto count = std::size_t(std::count(algorithms.begin(), algorithms.end(), name));
    if (count == algorithms.size()) return name;
    text += text.empty() ? fmt::format("{} for {} bucket{}", name, count, count == 1 ? "" : "s")
                         : fmt::format(" and {} for {}", name, count);
  }
  return text;
}

}  // namespace lockstep::strategies
