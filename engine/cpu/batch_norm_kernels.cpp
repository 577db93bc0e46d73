// SPDX-License-Identifier: MIT
#include "engine/cpu/batch_norm_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/batch_norm_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

using Mask = hn::Mask<Lanes>;
constexpr std::size_t kGroup = 16;                 // channels whose mask is two bytes
constexpr std::size_t kVectors = kGroup / kWidth;  // per group
constexpr std::size_t kTile = 4;                   // vectors of channels summed at once
constexpr std::size_t kMostInFloat = 256;          // positions summed in float32

// Stores a vector, with a non-temporal store if kStream and T is float32.
template <bool kStream, class T>
HWY_INLINE void put(Vector value, T* to) {
  if constexpr (kStream && std::is_same_v<T, float>) {
    hn::Stream(value, kLanes, to);
  } else {
    store(value, to);
  }
}

// Returns the mask of elements [at, at + kWidth); `at` is a multiple of kWidth.
HWY_INLINE Mask bits_at(const std::uint8_t* bits, std::size_t at) {
  if constexpr (kWidth == 16) return hn::LoadMaskBits(kLanes, bits + at / 8);
  const std::uint8_t eight[8] = {std::uint8_t(bits[at / 8] >> (at % 8))};
  return hn::LoadMaskBits(kLanes, eight);
}

// Stores the masks of a group as two bytes.
HWY_INLINE void store_bits(const Mask* masks, std::uint8_t* to) {
  if constexpr (kWidth == 16) {
    hn::StoreMaskBits(kLanes, masks[0], to);
  } else {
    unsigned all_bits = 0;
    for (std::size_t j = 0; j < kVectors; ++j) {
      std::uint8_t eight[8] = {};
      hn::StoreMaskBits(kLanes, masks[j], eight);
      all_bits |= unsigned(eight[0]) << (j * kWidth);
    }
    to[0] = std::uint8_t(all_bits);
    to[1] = std::uint8_t(all_bits >> 8);
  }
}

// Returns the gradient of ReLU's input: dy where the mask is set.
template <class T>
HWY_INLINE Vector passed(const BatchNormPart<T>& a, std::size_t at) {
  const Vector dy = load(a.dy + at);
  return a.passed == nullptr ? dy : hn::IfThenElseZero(bits_at(a.passed, at), dy);
}

// Adds two sums per channel for V vectors of channels from `c` on, over positions [first, first +
// count). They are kept in registers and then added to those in float64. pair(at, channel, one,
// other) returns two numbers of the element at `at`; the sums are those of `one` and of `one` times
// `other`.
template <std::size_t V, class T, class Pair>
HWY_INLINE void add_sums(const BatchNormPart<T>& a, std::size_t c, std::size_t first,
                         std::size_t count, Pair pair) {
  Vector sum[V], product[V];
  HWY_UNROLL(4)
  for (std::size_t j = 0; j < V; ++j) sum[j] = product[j] = zero();
  for (std::size_t p = first; p < first + count; ++p) {
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) {
      const std::size_t channel = c + j * kWidth;
      Vector one, other;
      pair(p * a.channels + channel, channel, one, other);
      sum[j] = hn::Add(sum[j], one);
      product[j] = hn::MulAdd(one, other, product[j]);
    }
  }
  for (std::size_t j = 0; j < V; ++j) {
    alignas(64) float sums[kWidth], products[kWidth];
    store(sum[j], sums);
    store(product[j], products);
    double* const to = a.sums + c + j * kWidth;
    for (std::size_t i = 0; i < kWidth; ++i) to[i] += double(sums[i]);
    for (std::size_t i = 0; i < kWidth; ++i) to[a.channels + i] += double(products[i]);
  }
}

// Adds the sums in blocks of positions that stay in the cache while all their channels are summed,
// tile by tile. It goes from the last block to the first: the end of data that was just written is
// still in the cache, and the next pass begins with the blocks that are read last here.
template <class T, class Pair>
HWY_INLINE void add_all_sums(const BatchNormPart<T>& a, Pair pair) {
  const std::size_t block = std::clamp<std::size_t>(32768 / a.channels, 16, kMostInFloat);
  for (std::size_t end = a.positions; end > 0;) {
    const std::size_t count = (end - 1) % block + 1, first = end - count;
    end = first;
    std::size_t c = 0;
    for (; c + kTile * kWidth <= a.channels; c += kTile * kWidth) {
      add_sums<kTile>(a, c, first, count, pair);
    }
    for (; c < a.channels; c += kWidth) add_sums<1>(a, c, first, count, pair);
  }
}

template <class T>
HWY_INLINE void sums_of(const BatchNormPart<T>& a) {
  add_all_sums(a, [&](std::size_t at, std::size_t c, Vector& one, Vector& other) {
    one = other = hn::Sub(load(a.x + at), load(a.about + c));
  });
}

template <class T>
HWY_INLINE void gradient_sums_of(const BatchNormPart<T>& a) {
  add_all_sums(a, [&](std::size_t at, std::size_t c, Vector& one, Vector& other) {
    one = passed(a, at);
    other = hn::Sub(load(a.x + at), load(a.about + c));
  });
}

// Returns whether to use non-temporal stores: for results too large to stay in a cache until they
// are read. They avoid reading the lines first. The vectors must be whole cache lines.
template <class T>
bool streams(const BatchNormPart<T>& a) {
  constexpr std::size_t kHeld = std::size_t(8) << 20;  // bytes of a result
  const auto on_line = [](const T* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 64 == 0;
  };
  return std::is_same_v<T, float> && kWidth == 16 && a.positions * a.channels * sizeof(T) > kHeld &&
         on_line(a.y) && on_line(a.dx) && on_line(a.dother);
}

template <bool kStream, class T>
HWY_INLINE void forward_of(const BatchNormPart<T>& a) {
  for (std::size_t p = 0; p < a.positions; ++p) {
    for (std::size_t c = 0; c < a.channels; c += kGroup) {
      Mask masks[kVectors];
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < kVectors; ++j) {
        const std::size_t channel = c + j * kWidth, at = p * a.channels + channel;
        const Vector centred = hn::Sub(load(a.x + at), load(a.about + channel));
        Vector y = hn::MulAdd(centred, load(a.factor + channel), load(a.shift + channel));
        if (a.other_factor != nullptr) {
          const Vector other = hn::Sub(load(a.other + at), load(a.other_about + channel));
          y = hn::Add(
              y, hn::MulAdd(other, load(a.other_factor + channel), load(a.other_shift + channel)));
        } else if (a.other != nullptr) {
          y = hn::Add(y, load(a.other + at));
        }
        masks[j] = hn::Gt(y, zero());
        put<kStream>(a.mask == nullptr ? y : cut(y), a.y + at);
      }
      if (a.mask != nullptr) store_bits(masks, a.mask + (p * a.channels + c) / 8);
    }
  }
}

template <bool kStream, class T>
HWY_INLINE void backward_of(const BatchNormPart<T>& a) {
  for (std::size_t p = 0; p < a.positions; ++p) {
    for (std::size_t c = 0; c < a.channels; c += kWidth) {
      const std::size_t at = p * a.channels + c;
      const Vector g = passed(a, at);
      const Vector centred = hn::Sub(load(a.x + at), load(a.about + c));
      if (a.dx != nullptr) {
        const Vector rest =
            hn::NegMulAdd(centred, load(a.slope + c), hn::Sub(g, load(a.level + c)));
        put<kStream>(hn::Mul(rest, load(a.factor + c)), a.dx + at);
      }
      if (a.dother != nullptr) put<kStream>(g, a.dother + at);
    }
  }
}

// Runs the kernel, with non-temporal stores if they pay.
template <class T>
HWY_INLINE void forward_any(const BatchNormPart<T>& a) {
  if (!streams(a)) return forward_of<false>(a);
  forward_of<true>(a);
  hwy::FlushStream();
}
template <class T>
HWY_INLINE void backward_any(const BatchNormPart<T>& a) {
  if (!streams(a)) return backward_of<false>(a);
  backward_of<true>(a);
  hwy::FlushStream();
}

void BatchNormSumsWide(const BatchNormPart<float>& a) {
  sums_of(a);
}
void BatchNormSumsNarrow(const BatchNormPart<BFloat16>& a) {
  sums_of(a);
}
void BatchNormForwardWide(const BatchNormPart<float>& a) {
  forward_any(a);
}
void BatchNormForwardNarrow(const BatchNormPart<BFloat16>& a) {
  forward_any(a);
}
void BatchNormGradientSumsWide(const BatchNormPart<float>& a) {
  gradient_sums_of(a);
}
void BatchNormGradientSumsNarrow(const BatchNormPart<BFloat16>& a) {
  gradient_sums_of(a);
}
void BatchNormBackwardWide(const BatchNormPart<float>& a) {
  backward_any(a);
}
void BatchNormBackwardNarrow(const BatchNormPart<BFloat16>& a) {
  backward_any(a);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(BatchNormSumsWide);
HWY_EXPORT(BatchNormSumsNarrow);
HWY_EXPORT(BatchNormForwardWide);
HWY_EXPORT(BatchNormForwardNarrow);
HWY_EXPORT(BatchNormGradientSumsWide);
HWY_EXPORT(BatchNormGradientSumsNarrow);
HWY_EXPORT(BatchNormBackwardWide);
HWY_EXPORT(BatchNormBackwardNarrow);

void batch_norm_sums(const BatchNormPart<float>& part) {
  HWY_DYNAMIC_DISPATCH(BatchNormSumsWide)(part);
}
void batch_norm_sums(const BatchNormPart<BFloat16>& part) {
  HWY_DYNAMIC_DISPATCH(BatchNormSumsNarrow)(part);
}
void batch_norm_forward(const BatchNormPart<float>& part) {
  HWY_DYNAMIC_DISPATCH(BatchNormForwardWide)(part);
}
void batch_norm_forward(const BatchNormPart<BFloat16>& part) {
  HWY_DYNAMIC_DISPATCH(BatchNormForwardNarrow)(part);
}
void batch_norm_gradient_sums(const BatchNormPart<float>& part) {
  HWY_DYNAMIC_DISPATCH(BatchNormGradientSumsWide)(part);
}
void batch_norm_gradient_sums(const BatchNormPart<BFloat16>& part) {
  HWY_DYNAMIC_DISPATCH(BatchNormGradientSumsNarrow)(part);
}
void batch_norm_backward(const BatchNormPart<float>& part) {
  HWY_DYNAMIC_DISPATCH(BatchNormBackwardWide)(part);
}
void batch_norm_backward(const BatchNormPart<BFloat16>& part) {
  HWY_DYNAMIC_DISPATCH(BatchNormBackwardNarrow)(part);
}

}  // namespace lockstep::engine::cpu
#endif
