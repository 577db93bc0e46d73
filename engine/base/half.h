// SPDX-License-Identifier: MIT
// A half-precision number (IEEE 754 binary16): 1 sign bit, 5 exponent bits and 10 fraction bits (11
// significant bits, 6e-8 to 65504). A storage type: it converts to float32 exactly, and arithmetic
// uses float32. Two bytes, trivially copyable; `bits` holds the representation.
#pragma once
#include <bit>
#include <cstdint>

namespace lockstep::engine {

struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  // Rounds to nearest, ties to even; 65520 and above give infinity, and NaN stays NaN.
  explicit constexpr Half(float value);
  constexpr operator float() const;
};

// Numbers below 2^-14 have steps of 2^-24, as floats in [0.5, 1) have, so adding 0.5 rounds them.
// Other numbers lose 13 fraction bits; a carry propagates into the exponent, and at the end into
// infinity.
constexpr Half::Half(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000, kTooLarge = 0x47800000, kNormal = 0x38800000;
  const auto word = std::bit_cast<std::uint32_t>(value), size = word & 0x7fffffff;
  std::uint32_t rounded = 0x7c00;
  if (size > kInfinity) {
    rounded = 0x7e00 | (size >> 13 & 0x3ff);
  } else if (size < kNormal) {
    rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) -
              std::bit_cast<std::uint32_t>(0.5f);
  } else if (size < kTooLarge) {
    rounded = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10);
  }
  bits = std::uint16_t((word >> 16 & 0x8000) | rounded);
}

constexpr Half::operator float() const {
  const std::uint32_t sign = std::uint32_t(bits & 0x8000) << 16, size = bits & 0x7fff;
  if (size < 0x400) {  // subnormal: a multiple of 2^-24
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(float(size) * 0x1p-24f));
  }
  const std::uint32_t bias = size < 0x7c00 ? 112 : 224;
  return std::bit_cast<float>(sign | ((size << 13) + (bias << 23)));
}

}  // namespace lockstep::engine
