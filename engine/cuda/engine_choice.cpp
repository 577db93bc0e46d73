// SPDX-License-Identifier: MIT
#include "engine/cuda/engine_choice.h"

#include <fmt/core.h>

#include <charconv>
#include <system_error>

namespace lockstep::engine::cuda {

std::string to_text(const EngineChoice& choice) {
  std::string text = std::to_string(choice.engine);
  for (const auto& [type, value] : choice.knobs) text += fmt::format(" {}={}", type, value);
  return text;
}

std::optional<EngineChoice> engine_choice_of(std::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](auto& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc{};
  };
  const auto skip = [&](char character) { return at != end && *at++ == character; };
  EngineChoice choice;
  if (!number(choice.engine)) return std::nullopt;
  while (at != end) {
    int type = 0;
    std::int64_t value = 0;
    if (!skip(' ') || !number(type) || !skip('=') || !number(value)) return std::nullopt;
    if (type < 0 || type >= EngineChoice::kKnobs) return std::nullopt;
    if (!choice.knobs.emplace(type, value).second) return std::nullopt;
  }
  return choice;
}

}  // namespace lockstep::engine::cuda
