// SPDX-License-Identifier: MIT
// An engine of cuDNN with the values of its knobs. From these the same plan can be built again, in
// another process too, by the same version of the library for the same kind of GPU. Plain data; any
// thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::engine::cuda {

struct EngineChoice {
  static constexpr int kKnobs = 64;  // types are less than this; cuDNN 9 has 44

  std::int64_t engine = 0;                 // its number among the engines for a graph
  std::map<int, std::int64_t> knobs = {};  // type -> value
};

// "67 2=1 13=0": the engine, and each knob's type and value.
std::string to_text(const EngineChoice& choice);
// What such a text says; none where it is not one.
std::optional<EngineChoice> engine_choice_of(std::string_view text);

}  // namespace lockstep::engine::cuda
