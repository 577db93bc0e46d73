// SPDX-License-Identifier: MIT
// Tests the two 16-bit number types bit by bit: each of their 65,536 values, and each midpoint
// between neighbors.
#include "engine/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/base/bfloat16.h"

namespace lockstep::engine {
namespace half_test {

constexpr std::uint32_t kAll = 65536;

template <class T>
struct Form;
template <>
struct Form<Half> {
  static constexpr int kFraction = 10, kExponents = 32, kBias = 15;
};
template <>
struct Form<BFloat16> {
  static constexpr int kFraction = 7, kExponents = 256, kBias = 127;
};

template <class T>
T of_bits(std::uint32_t bits) {
  return std::bit_cast<T>(std::uint16_t(bits));
}

template <class T>
constexpr std::uint32_t kInfinity = std::uint32_t(Form<T>::kExponents - 1) << Form<T>::kFraction;

// Returns the value by definition: sign, power of two, and significand. Subnormal numbers have the
// smallest power and no implicit one.
template <class T>
double defined(std::uint32_t bits) {
  const int fraction = int(bits & ((1u << Form<T>::kFraction) - 1));
  const int exponent = int(bits >> Form<T>::kFraction) & (Form<T>::kExponents - 1);
  const int one = exponent == 0 ? 0 : 1 << Form<T>::kFraction;
  const int power = std::max(exponent, 1) - Form<T>::kBias - Form<T>::kFraction;
  return (bits < 0x8000 ? 1 : -1) * std::ldexp(fraction + one, power);
}

template <class T>
class NarrowNumbers : public testing::Test {};
using Types = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(NarrowNumbers, Types);

TYPED_TEST(NarrowNumbers, AreTwoPlainBytes) {
  EXPECT_EQ(sizeof(TypeParam), 2u);
  EXPECT_TRUE(std::is_trivially_copyable_v<TypeParam>);
  EXPECT_EQ(TypeParam().bits, 0);
  EXPECT_EQ(TypeParam{}.bits, 0);
}

TYPED_TEST(NarrowNumbers, WidenToWhatTheirBitsSay) {
  for (std::uint32_t bits = 0; bits < kAll; ++bits) {
    const float wide = of_bits<TypeParam>(bits);
    const std::uint32_t size = bits & 0x7fff;
    if (size > kInfinity<TypeParam>) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
    } else if (size == kInfinity<TypeParam>) {
      ASSERT_TRUE(std::isinf(wide)) << bits;
    } else {
      ASSERT_EQ(double(wide), defined<TypeParam>(bits)) << bits;
    }
    ASSERT_EQ(std::signbit(wide), bits >= 0x8000) << bits;
  }
}

// Each value survives widening and narrowing bit by bit; a NaN becomes a quiet NaN.
TYPED_TEST(NarrowNumbers, ComeBack) {
  for (std::uint32_t bits = 0; bits < kAll; ++bits) {
    const bool none = (bits & 0x7fff) > kInfinity<TypeParam>;
    const std::uint32_t quiet = none ? 1u << (Form<TypeParam>::kFraction - 1) : 0;
    ASSERT_EQ(TypeParam(float(of_bits<TypeParam>(bits))).bits, bits | quiet) << bits;
  }
}

// Rounding is to nearest, ties to even, just below, at, and just above each midpoint. Past the
// largest number, the next value would be the next power of two; it rounds to infinity.
TYPED_TEST(NarrowNumbers, AreTheNearest) {
  for (std::uint32_t bits = 0; bits < kInfinity<TypeParam>; ++bits) {
    const float here = of_bits<TypeParam>(bits);
    const double step = bits + 1 < kInfinity<TypeParam>
                            ? defined<TypeParam>(bits + 1) - double(here)
                            : double(here) - defined<TypeParam>(bits - 1);
    const float middle = float(double(here) + step / 2);
    ASSERT_EQ(double(middle), double(here) + step / 2) << "a float holds it";
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto narrow = [&](float value) {
        return std::uint32_t(TypeParam(sign == 0 ? value : -value).bits);
      };
      ASSERT_EQ(narrow(middle), sign | even) << bits;
      ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), sign | bits) << bits;
      ASSERT_EQ(narrow(std::nextafter(middle, INFINITY)), sign | (bits + 1)) << bits;
    }
  }
}

TYPED_TEST(NarrowNumbers, KnowWhatIsTooLargeTooSmallAndNone) {
  using Limits = std::numeric_limits<float>;
  EXPECT_EQ(TypeParam(Limits::infinity()).bits, kInfinity<TypeParam>);
  EXPECT_EQ(TypeParam(-Limits::infinity()).bits, kInfinity<TypeParam> | 0x8000);
  EXPECT_EQ(TypeParam(Limits::max()).bits, kInfinity<TypeParam>);
  EXPECT_EQ(TypeParam(Limits::denorm_min()).bits, 0);
  EXPECT_EQ(TypeParam(-Limits::denorm_min()).bits, 0x8000);
  // A NaN must not become an infinity if its payload lies in the lower bits alone.
  for (const std::uint32_t none : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u})
    EXPECT_TRUE(std::isnan(float(TypeParam(std::bit_cast<float>(none))))) << none;
}

TEST(Half, HasTheValuesOfItsStandard) {
  static_assert(float(Half(1.0f)) == 1.0f);
  static_assert(Half(65504.0f).bits == 0x7bff && Half(65520.0f).bits == 0x7c00);
  static_assert(Half(0x1p-24f).bits == 1 && Half(0x1p-25f).bits == 0);
  EXPECT_EQ(float(Half(0.1f)), 0.0999755859375f);
}

TEST(BFloat16, IsTheUpperHalfOfAFloat) {
  static_assert(BFloat16(1.0f).bits == 0x3f80);
  static_assert(BFloat16(257.0f).bits == BFloat16(256.0f).bits);
  EXPECT_EQ(float(BFloat16(0.1f)), 0.10009765625f);
}

}  // namespace half_test
}  // namespace lockstep::engine
