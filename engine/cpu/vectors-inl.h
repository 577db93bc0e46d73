// SPDX-License-Identifier: MIT
// Vectors of float32 for the own kernels, once per instruction set (Highway's include idiom): at
// most 16 lanes, in numbers that divide 16. bfloat16 numbers are widened when they are loaded, and
// rounded to the nearest when they are stored.
#if defined(LOCKSTEP_ENGINE_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_CPU_VECTORS_INL_H_
#undef LOCKSTEP_ENGINE_CPU_VECTORS_INL_H_
#else
#define LOCKSTEP_ENGINE_CPU_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/cpu/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Lanes>;
inline constexpr Lanes kLanes;
constexpr std::size_t kWidth = hn::MaxLanes(Lanes());  // divides 16
// True if there are 32 vector registers instead of 16. Better targets have smaller numbers.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON;

HWY_INLINE Vector load(const float* from) {
  return hn::LoadU(kLanes, from);
}
HWY_INLINE void store(Vector value, float* to) {
  hn::StoreU(value, kLanes, to);
}
HWY_INLINE Vector load(const BFloat16* from) {
  if constexpr (kWidth == 1) {
    return hn::Set(kLanes, float(*from));
  } else {
    return load_narrow(kLanes, from);
  }
}
HWY_INLINE void store(Vector value, BFloat16* to) {
  if constexpr (kWidth == 1) {
    *to = BFloat16(hn::GetLane(value));
  } else {
    const Narrow<Lanes> narrow;
    hn::StoreU(narrowed(kLanes, BFloat16(), value), narrow,
               reinterpret_cast<std::int16_t*>(&to->bits));
  }
}
HWY_INLINE Vector all(float value) {
  return hn::Set(kLanes, value);
}
HWY_INLINE Vector zero() {
  return hn::Zero(kLanes);
}

// The size from which on data do not stay in a cache.
constexpr std::size_t kManyFloats = std::size_t{4} << 20;

HWY_INLINE float* aligned(float* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return reinterpret_cast<float*>((address + 63) / 64 * 64);
}

// The columns of a matrix, a multiple of 16, are divided into panels: first whole panels of kPanel
// vectors, then a panel of two vectors and one of one. `panel_vectors` returns the vectors of the
// next panel.
constexpr std::size_t kPanel = kManyRegisters || kWidth == 1 ? 4 : 2;
static_assert(kPanel * kWidth % 4 == 0);  // turn_four fills four columns
HWY_INLINE std::size_t panel_vectors(std::size_t columns_left) {
  const std::size_t vectors = columns_left / kWidth;
  return vectors >= kPanel ? kPanel : vectors >= 2 ? 2 : 1;
}

// Writes four rows of kWidth numbers, `from` apart, as the columns of kWidth rows of float32, `to`
// apart.
template <class T>
HWY_INLINE void turn_four(const T* rows, std::size_t from, float* columns, std::size_t to) {
  alignas(64) float turned[kWidth][4];
  hn::StoreInterleaved4(load(rows), load(rows + from), load(rows + 2 * from), load(rows + 3 * from),
                        kLanes, turned[0]);
  for (std::size_t i = 0; i < kWidth; ++i)
    std::memcpy(columns + i * to, turned[i], sizeof turned[i]);
}

// Returns zero for negative values; keeps NaN.
HWY_INLINE Vector cut(Vector y) {
  return hn::IfThenElse(hn::Lt(y, zero()), zero(), y);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#endif
