// SPDX-License-Identifier: MIT
#include "engine/base/quantity.h"

#include <fmt/format.h>

#include <array>

namespace lockstep::engine {

std::string count_text(std::uint64_t count, std::string_view one, std::string_view many) {
  if (count == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, many);
}

std::string bytes_text(double bytes) {
  constexpr double kUnit = 1024, kRoundsToUnit = 1023.5;
  constexpr std::array<std::string_view, 5> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < kRoundsToUnit) return count_text(std::uint64_t(bytes + 0.5), "byte");
  std::size_t unit = 0;
  for (bytes /= kUnit; bytes >= kRoundsToUnit && unit + 1 < kUnits.size(); bytes /= kUnit) ++unit;
  return bytes < 99.95 ? fmt::format("{:.3g} {}", bytes, kUnits[unit])
                       : fmt::format("{:.0f} {}", bytes, kUnits[unit]);
}

}  // namespace lockstep::engine
