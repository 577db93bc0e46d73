// SPDX-License-Identifier: MIT
// The upper 16 bits of a float32: a sign, 8 bits of exponent, 7 of fraction; 8 significant bits,
// float32's range. A type of storage: it widens to float32 exactly, and arithmetic is done there.
// Two bytes, trivially copyable; what the bits say stands in `bits`.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace lockstep::engine {

struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  // The nearest, of two as near the even one; beyond the largest infinity. What is no number stays
  // none.
  explicit constexpr BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool none = (word & 0x7fffffff) > 0x7f800000;
    bits = std::uint16_t(none ? word >> 16 | 0x40 : (word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  // Of any other number what a float32 of it is: rounded twice where that does not hold it.
  template <class Number>
  requires std::is_arithmetic_v<Number>
  explicit constexpr BFloat16(Number value) : BFloat16(float(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
};

}  // namespace lockstep::engine
