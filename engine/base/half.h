// SPDX-License-Identifier: MIT
// A number of 16 bits as IEEE 754 has it (binary16): a sign, 5 bits of exponent, 10 of fraction; 11
// significant bits, from 6e-8 to 65504. A type of storage: it widens to float32 exactly, and
// arithmetic is done there. Two bytes, trivially copyable; what the bits say stands in `bits`.
#pragma once
#include <bit>
#include <cstdint>

namespace lockstep::engine {

struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  // The nearest, of two as near the even one; beyond 65520 infinity. What is no number stays none.
  explicit constexpr Half(float value);
  constexpr operator float() const;
};

// Numbers below 2^-14 have steps of 2^-24, as floats around 0.5 have: adding 0.5 rounds them.
// Others lose 13 bits of fraction; a carry goes on into the exponent, and at last into infinity.
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
  if (size < 0x400) {  // no leading one: so many times 2^-24
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(float(size) * 0x1p-24f));
  }
  const std::uint32_t bias = size < 0x7c00 ? 112 : 224;
  return std::bit_cast<float>(sign | ((size << 13) + (bias << 23)));
}

}  // namespace lockstep::engine
