// SPDX-License-Identifier: MIT
// An engine of cuDNN with the values of its knobs. The same version of the library can rebuild the
// same plan from them for the same kind of GPU, also in another process. Plain data; thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::engine::cuda {

struct EngineChoice {
  static constexpr int kKnobs = 64;  // above all types; cuDNN 9 has 44

  std::int64_t engine = 0;                 // index among the engines of a graph
  std::map<int, std::int64_t> knobs = {};  // type -> value
};

// Returns "67 2=1 13=0": the engine, and each knob's type and value.
std::string to_text(const EngineChoice& choice);
// Parses such a text; returns none if it is malformed.
std::optional<EngineChoice> engine_choice_of(std::string_view text);

}  // namespace lockstep::engine::cuda
