// SPDX-License-Identifier: MIT
// Conversions between 16-bit numbers and float32 in registers, once per instruction set (Highway's
// include idiom), and loads and stores of memory of any type. The bits are those of engine::Half
// and engine::BFloat16, whose files explain them. A vector of T has as many lanes as one of
// float32, in half the space.
#if defined(LOCKSTEP_ENGINE_CPU_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_CPU_NARROW_INL_H_
#undef LOCKSTEP_ENGINE_CPU_NARROW_INL_H_
#else
#define LOCKSTEP_ENGINE_CPU_NARROW_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "engine/base/bfloat16.h"
#include "engine/base/half.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// True if the processor converts float16: F16C preceded AVX2, and better targets have smaller
// numbers. Highway's emulation neither rounds nor handles infinity.
constexpr bool kConvertsHalves = HWY_TARGET <= HWY_AVX2;

template <class D>  // D is a tag of float32
using Words = hn::RebindToUnsigned<D>;
template <class D>
using SignedWords = hn::RebindToSigned<D>;
template <class D>
using Narrow = hn::Rebind<std::int16_t, D>;

// Returns the lower halves of words, whatever their upper halves. The shifts sign-extend them, so
// that they fit.
template <class D>
HWY_INLINE hn::Vec<Narrow<D>> lower_halves(D, hn::Vec<Words<D>> words) {
  const SignedWords<D> ds;
  return hn::DemoteTo(Narrow<D>(), hn::ShiftRight<16>(hn::BitCast(ds, hn::ShiftLeft<16>(words))));
}

template <class D>
HWY_INLINE hn::Vec<Words<D>> widened(D, const std::uint16_t* from) {
  return hn::PromoteTo(Words<D>(), hn::LoadU(hn::Rebind<std::uint16_t, D>(), from));
}

template <class D>
HWY_INLINE hn::Vec<D> load_narrow(D d, const BFloat16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(widened(d, &from->bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_narrow(D d, const Half* from) {
  if constexpr (kConvertsHalves) {
    const hn::Rebind<hwy::float16_t, D> halves;
    return hn::PromoteTo(
        d, hn::BitCast(halves, hn::LoadU(hn::Rebind<std::uint16_t, D>(), &from->bits)));
  } else {
    const Words<D> du;
    const SignedWords<D> ds;
    const auto word = widened(d, &from->bits);
    const auto size = hn::And(word, hn::Set(du, 0x7fff));
    const auto order = hn::BitCast(ds, size);  // compared as signed numbers: all are positive
    const auto normal = hn::Add(hn::ShiftLeft<13>(size), hn::Set(du, 112u << 23));
    const auto large = hn::Add(normal, hn::Set(du, 112u << 23));
    const auto small = hn::BitCast(ds, hn::Mul(hn::ConvertTo(d, order), hn::Set(d, 0x1p-24f)));
    const auto up = hn::IfThenElse(hn::Gt(order, hn::Set(ds, 0x7bff)), hn::BitCast(ds, large),
                                   hn::BitCast(ds, normal));
    const auto all = hn::IfThenElse(hn::Lt(order, hn::Set(ds, 0x400)), small, up);
    const auto sign = hn::ShiftLeft<16>(hn::Xor(word, size));
    return hn::BitCast(d, hn::Or(hn::BitCast(du, all), sign));
  }
}

// Returns words whose upper halves are BFloat16(value), rounded to the nearest, ties to even.
template <class D>
HWY_INLINE hn::Vec<Words<D>> rounded_words(D, hn::Vec<D> value) {
  const Words<D> du;
  const auto word = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(du, 1));
  const auto nearest = hn::Add(hn::Add(word, hn::Set(du, 0x7fff)), odd);
  const auto none = hn::RebindMask(du, hn::IsNaN(value));
  return hn::IfThenElse(none, hn::Or(word, hn::Set(du, 0x400000)), nearest);
}

// Returns the upper halves of words.
template <class D>
HWY_INLINE hn::Vec<Narrow<D>> upper_halves(D, hn::Vec<Words<D>> words) {
  return hn::DemoteTo(Narrow<D>(), hn::ShiftRight<16>(hn::BitCast(SignedWords<D>(), words)));
}

// Returns the bits of BFloat16(value); the second overload returns those of Half(value).
template <class D>
HWY_INLINE hn::Vec<Narrow<D>> narrowed(D d, BFloat16, hn::Vec<D> value) {
  return upper_halves(d, rounded_words(d, value));
}

template <class D>
HWY_INLINE hn::Vec<Narrow<D>> narrowed(D d, Half, hn::Vec<D> value) {
  if constexpr (kConvertsHalves) {
    return hn::BitCast(Narrow<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
  } else {
    const Words<D> du;
    const SignedWords<D> ds;
    const auto word = hn::BitCast(du, value);
    const auto size = hn::And(word, hn::Set(du, 0x7fffffff));
    const auto order = hn::BitCast(ds, size);
    const auto upper = hn::ShiftRight<13>(size);
    const auto odd = hn::And(upper, hn::Set(du, 1));
    const auto normal = hn::Sub(hn::ShiftRight<13>(hn::Add(hn::Add(size, hn::Set(du, 0xfff)), odd)),
                                hn::Set(du, 112 << 10));
    const auto half = hn::Set(d, 0.5f);
    const auto small =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, size), half)), hn::BitCast(du, half));
    const auto none = hn::Or(hn::Set(du, 0x7e00), hn::And(upper, hn::Set(du, 0x3ff)));
    const auto above = [&](int bound) {
      return hn::RebindMask(du, hn::Gt(order, hn::Set(ds, bound)));
    };
    auto bits = hn::IfThenElse(above(0x387fffff), normal, small);
    bits = hn::IfThenElse(above(0x477fffff), hn::Set(du, 0x7c00), bits);
    bits = hn::IfThenElse(above(0x7f800000), none, bits);
    return lower_halves(d, hn::Or(bits, hn::ShiftRight<16>(hn::Xor(word, size))));
  }
}

// Tells whether T is a 16-bit type. `Computed` is the type of T in registers.
template <class T>
constexpr bool kNarrow = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
using Computed = std::conditional_t<kNarrow<T>, float, T>;

// Converts single numbers if there are no vectors. Calls compile faster than many inlined copies.
template <class T>
HWY_NOINLINE float widened_one(const T* from) {
  return float(*from);
}
template <class T>
HWY_NOINLINE void narrow_one(float value, T* to) {
  *to = T(value);
}

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* from) {
  if constexpr (!kNarrow<T>) {
    return hn::LoadU(d, from);
  } else if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::Set(d, widened_one(from));
  } else {
    return load_narrow(d, from);
  }
}

template <class D, class T>
HWY_INLINE void store_one(D d, hn::Vec<D> value, T* to) {
  if constexpr (kNarrow<T> && hn::MaxLanes(D()) == 1) {
    narrow_one(hn::GetLane(value), to);
  } else if constexpr (kNarrow<T>) {
    hn::StoreU(narrowed(d, T(), value), Narrow<D>(), reinterpret_cast<std::int16_t*>(to));
  } else {
    hn::StoreU(value, d, to);
  }
}

template <bool kStream, class D>
HWY_INLINE void store(D d, hn::Vec<D> value, hn::TFromD<D>* to) {
  if constexpr (kStream) {
    hn::Stream(value, d, to);
  } else {
    hn::StoreU(value, d, to);
  }
}

// Names a vector of the narrow type T that holds two vectors of D. (`Combine` and `ConcatOdd` are
// found by argument-dependent lookup, because targets without vectors do not have them.)
template <class T, class D>
using Whole =
    hn::Repartition<std::conditional_t<std::is_same_v<T, BFloat16>, std::uint16_t, std::int16_t>,
                    D>;

template <class D>
HWY_INLINE hn::Vec<Whole<BFloat16, D>> packed(D d, BFloat16, hn::Vec<D> a, hn::Vec<D> b) {
  const Whole<BFloat16, D> whole;
  return ConcatOdd(whole, hn::BitCast(whole, rounded_words(d, b)),
                   hn::BitCast(whole, rounded_words(d, a)));
}

template <class D>
HWY_INLINE hn::Vec<Whole<Half, D>> packed(D d, Half, hn::Vec<D> a, hn::Vec<D> b) {
  return Combine(Whole<Half, D>(), narrowed(d, Half(), b), narrowed(d, Half(), a));
}

// Stores two vectors consecutively. Narrow ones fill one vector, because half a vector has no
// non-temporal store.
template <bool kStream, class D, class T>
HWY_INLINE void store_two(D d, hn::Vec<D> a, hn::Vec<D> b, T* to) {
  if constexpr (!kNarrow<T>) {
    store<kStream>(d, a, to);
    store<kStream>(d, b, to + hn::MaxLanes(d));
  } else if constexpr (hn::MaxLanes(D()) == 1) {
    store_one(d, a, to);
    store_one(d, b, to + 1);
  } else {
    const Whole<T, D> whole;
    store<kStream>(whole, packed(d, T(), a, b), reinterpret_cast<hn::TFromD<decltype(whole)>*>(to));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#endif
