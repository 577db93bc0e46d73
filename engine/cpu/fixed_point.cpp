// SPDX-License-Identifier: MIT
// Plain loops that the compiler vectorizes for each instruction set. All floating-point operations
// here are exact, except for the roundings that the header names.
#include "engine/ops/fixed_point.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/fixed_point.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "engine/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

template <class T>
constexpr bool kNarrow = sizeof(T) == 2;

// Names the integer type with the size of T. Finite numbers without their sign are below the word
// of infinity.
template <class T>
using Word = std::conditional_t<sizeof(T) == 8, std::int64_t,
                                std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;
template <class T>
constexpr Word<T> infinity() {
  if constexpr (std::is_same_v<T, double>) {
    return 0x7ff0000000000000;
  } else if constexpr (std::is_same_v<T, float>) {
    return 0x7f800000;
  } else {
    return std::is_same_v<T, Half> ? 0x7c00 : 0x7f80;
  }
}

template <class T>
HWY_INLINE Word<T> size_of_number(T x) {
  constexpr Word<T> kAll = Word<T>(std::make_unsigned_t<Word<T>>(-1) >> 1);
  return Word<T>(std::bit_cast<Word<T>>(x) & kAll);
}

template <class T>
FixedExtent extent(const T* x, std::size_t count) {
  Word<T> largest = 0, unusual = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Word<T> size = size_of_number(x[i]);
    const bool finite = size < infinity<T>();
    const Word<T> counted = finite ? size : Word<T>(0);
    largest = std::max(largest, counted);
    unusual = Word<T>(unusual | Word<T>(!finite));
  }
  FixedExtent found;
  found.unusual = unusual != 0;
  if (largest != 0) std::frexp(double(std::bit_cast<T>(largest)), &found.exponent);
  return found;
}

// Multiplies by 2^exponent, in two factors because a single one might not be representable. The
// product is exact if it is finite and not below 2^-1022; below 2^-64 its error does not matter.
class Shift {
 public:
  explicit Shift(int exponent)
      : half_(std::ldexp(1.0, exponent / 2)), rest_(std::ldexp(1.0, exponent - exponent / 2)) {}
  HWY_INLINE double operator()(double x) const { return x * half_ * rest_; }

 private:
  double half_, rest_;
};

template <class T>
void to_limbs(const T* x, std::size_t count, FixedGrid grid, std::int64_t* whole,
              std::int64_t* rest) {
  const Shift shift(grid.bits - grid.exponent);
  const double limb = std::ldexp(1.0, grid.bits);
  for (std::size_t i = 0; i < count; ++i) {
    const double steps = size_of_number(x[i]) < infinity<T>() ? shift(double(x[i])) : 0.0;
    whole[i] = std::int64_t(steps);
    if constexpr (std::is_same_v<T, double>)
      rest[i] = std::int64_t((steps - double(whole[i])) * limb);
  }
}

// Returns the number as a double, rounded to odd: if digits are cut off, the last remaining one is
// odd. Rounding the result to fewer digits then equals rounding the number itself.
HWY_INLINE double odd(std::int64_t number) {
  constexpr std::int64_t kExact = std::int64_t(1) << 53;
  const std::int64_t cut = (number >> 10) | std::int64_t((number & 1023) != 0);
  const double large = double(cut) * 1024.0, small = double(number);
  return number < kExact && number > -kExact ? small : large;
}

HWY_INLINE float odd_float(double number) {
  constexpr std::uint64_t kCut = (std::uint64_t(1) << 29) - 1;
  const auto word = std::bit_cast<std::uint64_t>(number);
  const std::uint64_t last = (word & kCut) != 0 ? kCut + 1 : 0;
  return float(std::bit_cast<double>((word & ~kCut) | last));
}

template <class T>
void from_limb(const std::int64_t* whole, std::size_t count, FixedGrid grid, double scale, T* y) {
  const double step = std::ldexp(1.0, grid.exponent - grid.bits);
  const bool mean = scale != 1;
  const auto small = float(scale);
  for (std::size_t i = 0; i < count; ++i) {
    const double sum = odd(whole[i]) * step;
    if constexpr (!kNarrow<T>) {
      y[i] = mean ? float(double(float(sum)) * scale) : float(sum);
    } else {
      y[i] = T(mean ? float(sum) * small : odd_float(sum));
    }
  }
}

// Both limbs form one 128-bit number, which is rounded to the nearest double. If its steps are
// finer than the smallest double, it is a multiple of that double, so the shift does not round.
void from_two_limbs(const std::int64_t* whole, const std::int64_t* rest, std::size_t count,
                    FixedGrid grid, double scale, double* y) {
  __extension__ using Wide = __int128;
  const Shift shift(grid.exponent - 2 * grid.bits);
  const Wide limb = Wide(1) << grid.bits;
  const bool mean = scale != 1;
  for (std::size_t i = 0; i < count; ++i) {
    const double sum = shift(double(Wide(whole[i]) * limb + Wide(rest[i])));
    y[i] = mean ? sum * scale : sum;
  }
}

// Calls `body` with a number of the type.
template <class Body>
auto with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat32:
      return body(float{});
    case DType::kFloat64:
      return body(double{});
    case DType::kFloat16:
      return body(Half{});
    case DType::kBFloat16:
      return body(BFloat16{});
    case DType::kInt32:
    case DType::kInt64:
      break;
  }
  broken("sums of integers need no fixed point");
}

FixedExtent ExtentOf(DType dtype, const std::byte* x, std::size_t count) {
  return with_type(dtype, [&]<class T>(T) { return extent(reinterpret_cast<const T*>(x), count); });
}

void ToFixed(DType dtype, const std::byte* x, std::size_t count, FixedGrid grid,
             std::int64_t* whole, std::int64_t* rest) {
  with_type(dtype,
            [&]<class T>(T) { to_limbs(reinterpret_cast<const T*>(x), count, grid, whole, rest); });
}

void FromFixed(DType dtype, const std::int64_t* whole, const std::int64_t* rest, std::size_t count,
               FixedGrid grid, double scale, std::byte* y) {
  with_type(dtype, [&]<class T>(T) {
    T* const to = reinterpret_cast<T*>(y);
    if constexpr (std::is_same_v<T, double>) {
      from_two_limbs(whole, rest, count, grid, scale, to);
    } else {
      from_limb(whole, count, grid, scale, to);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine {
namespace cpu {

HWY_EXPORT(ExtentOf);
HWY_EXPORT(ToFixed);
HWY_EXPORT(FromFixed);

}  // namespace cpu

int fixed_bits(int n) {
  return 63 - std::bit_width(unsigned(n - 1));
}

FixedExtent fixed_extent(DType dtype, const std::byte* x, std::size_t count) {
  using namespace cpu;
  return HWY_DYNAMIC_DISPATCH(ExtentOf)(dtype, x, count);
}

void to_fixed(DType dtype, const std::byte* x, std::size_t count, FixedGrid grid,
              std::int64_t* whole, std::int64_t* rest) {
  using namespace cpu;
  if (grid.exponent != FixedExtent::kZeros)
    return HWY_DYNAMIC_DISPATCH(ToFixed)(dtype, x, count, grid, whole, rest);
  std::fill_n(whole, count, 0);
  if (fixed_limbs(dtype) == 2) std::fill_n(rest, count, 0);
}

void from_fixed(DType dtype, const std::int64_t* whole, const std::int64_t* rest, std::size_t count,
                FixedGrid grid, double scale, std::byte* y) {
  using namespace cpu;
  HWY_DYNAMIC_DISPATCH(FromFixed)(dtype, whole, rest, count, grid, scale, y);
}

}  // namespace lockstep::engine
#endif
