// SPDX-License-Identifier: MIT
#include "strategies/synchronous/step_choices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "engine/base/brief.h"
#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

using ChoiceNames = std::array<std::string_view, 3>;
constexpr ChoiceNames kUpdateNames{"auto", "fused", "separate"};
constexpr ChoiceNames kExchangeNames{"auto", "ipc", "host"};
constexpr ChoiceNames kGraphNames{"auto", "on", "off"};

std::uint8_t choice_of(std::string_view text, const ChoiceNames& names, std::string_view what) {
  const auto found = std::ranges::find(names, text);
  engine::require(found != names.end(), "unknown {} '{}'; known: {}", what, engine::brief(text),
                  fmt::join(names, ", "));
  return std::uint8_t(found - names.begin());
}

}  // namespace

std::string_view name(Update update) {
  return kUpdateNames[std::size_t(update)];
}
std::string_view name(GpuExchange exchange) {
  return kExchangeNames[std::size_t(exchange)];
}
std::string_view name(Graphs graphs) {
  return kGraphNames[std::size_t(graphs)];
}

Update update_of(std::string_view text) {
  return Update(choice_of(text, kUpdateNames, "update"));
}
GpuExchange gpu_exchange_of(std::string_view text) {
  return GpuExchange(choice_of(text, kExchangeNames, "gpu exchange"));
}
Graphs graphs_of(std::string_view text) {
  return Graphs(choice_of(text, kGraphNames, "graphs"));
}

}  // namespace lockstep::strategies
