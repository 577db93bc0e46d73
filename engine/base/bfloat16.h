// SPDX-License-Identifier: MIT
// bfloat16: the upper 16 bits of a float32, with 1 sign bit, 8 exponent bits and 7 fraction bits (8
// significant bits, float32's range). A storage type: it converts to float32 exactly, and
// arithmetic uses float32. Two bytes, trivially copyable; `bits` holds the representation.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace lockstep::engine {

struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  // Rounds to nearest, ties to even; overflow gives infinity, and NaN stays NaN.
  explicit constexpr BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool none = (word & 0x7fffffff) > 0x7f800000;
    bits = std::uint16_t(none ? word >> 16 | 0x40 : (word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  // Converts through float, so a number that float cannot represent is rounded twice.
  template <class Number>
  requires std::is_arithmetic_v<Number>
  explicit constexpr BFloat16(Number value) : BFloat16(float(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
};

}  // namespace lockstep::engine
