// SPDX-License-Identifier: MIT
// FNV-1a, 64 bits (Fowler, Noll, Vo): a hash to compare texts or to seed streams. Not secure
// against deliberate collisions. Pure; thread-safe; a nanosecond per byte.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep::engine {

constexpr std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ std::uint8_t(c)) * 0x100000001b3;
  return value;
}

}  // namespace lockstep::engine
