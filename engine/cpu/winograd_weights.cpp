// SPDX-License-Identifier: MIT
#include "engine/cpu/winograd_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/winograd_weights.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/cpu/pair_products.h"
#include "engine/cpu/winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kSquare = 16;  // filters or channels; divides both

// Computes G g G' of kWidth kernels, whose nine weights are `stride` apart, and stores it to all
// planes, with non-temporal stores if kStream.
template <bool kStream, class T>
HWY_INLINE void transform_weight(const T* w, std::size_t stride, float* planes, std::size_t plane) {
  Vector half[6][3];
  HWY_UNROLL(1)
  for (std::size_t j = 0; j < 3; ++j) {
    Vector column[6];
    weight_transform(load(w + j * stride), load(w + (3 + j) * stride), load(w + (6 + j) * stride),
                     column);
    HWY_UNROLL(6)
    for (std::size_t i = 0; i < 6; ++i) half[i][j] = column[i];
  }
  HWY_UNROLL(1)
  for (std::size_t i = 0; i < 6; ++i) {
    Vector row[6];
    weight_transform(half[i][0], half[i][1], half[i][2], row);
    HWY_UNROLL(6)
    for (std::size_t j = 0; j < 6; ++j) {
      float* const to = planes + (6 * i + j) * plane;
      if (kStream) {
        hn::Stream(row[j], kLanes, to);
      } else {
        store(row[j], to);
      }
    }
  }
}

// Transforms the weights for backward with pair products: words of two adjacent filters.
HWY_INLINE void transform_pairs(const WinogradShape& s, const BFloat16* w, float* backward) {
  const std::size_t filter = 9 * s.channels, plane = s.plane() / 2;
  alignas(64) float second[kPlanes * kWidth];
  for (std::size_t f = 0; f < s.filters; f += 2) {
    for (std::size_t c = 0; c < s.channels; c += kWidth) {
      float* const to = backward + in_panels(s.filters / 2, s.channels, f / 2, c);
      transform_weight<false>(w + f * filter + c, s.channels, to, plane);
      transform_weight<false>(w + (f + 1) * filter + c, s.channels, second, kWidth);
      for (std::size_t p = 0; p < kPlanes; p += 6) {
        pack_pairs(second + p * kWidth, reinterpret_cast<std::uint32_t*>(to + p * plane), plane,
                   nullptr, 0);
      }
    }
  }
}

// Lanes are channels for backward, as in w, and filters for forward, for which w is transposed
// first.
template <bool kStream, class T>
HWY_INLINE void transform_weights(const WinogradShape& s, const T* w, float* forward,
                                  float* backward) {
  const std::size_t filter = 9 * s.channels;
  for (std::size_t f = 0; backward != nullptr && f < s.filters; ++f) {
    for (std::size_t c = 0; c < s.channels; c += kWidth) {
      transform_weight<kStream>(w + f * filter + c, s.channels,
                                backward + in_panels(s.filters, s.channels, f, c), s.plane());
    }
  }
  alignas(64) float turned[9][kWidth][kSquare];  // channel, filter
  for (std::size_t c = 0; forward != nullptr && c < s.channels; c += kWidth) {
    for (std::size_t f = 0; f < s.filters; f += kSquare) {
      for (std::size_t i = 0; i < kSquare; i += 4) {
        for (std::size_t k = 0; k < 9; ++k) {
          turn_four(w + (f + i) * filter + k * s.channels + c, filter, &turned[k][0][i], kSquare);
        }
      }
      for (std::size_t i = 0; i < kWidth; ++i) {
        for (std::size_t j = 0; j < kSquare; j += kWidth) {
          transform_weight<kStream>(&turned[0][i][j], kWidth * kSquare,
                                    forward + in_panels(s.channels, s.filters, c + i, f + j),
                                    s.plane());
        }
      }
    }
  }
}

// Uses non-temporal stores for planes that no cache holds, if a vector is a whole cache line.
template <class T>
HWY_INLINE void weights(const WinogradShape& s, const T* w, float* forward, float* backward) {
  constexpr std::size_t kLine = 16;
  const auto on_line = [](const float* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 64 == 0;
  };
  if (kWidth == kLine && s.plane_weights() >= kManyFloats && on_line(forward) &&
      on_line(backward)) {
    transform_weights<true>(s, w, forward, backward);
    hwy::FlushStream();
  } else {
    transform_weights<false>(s, w, forward, backward);
  }
}

// Computes G' u G of kWidth filters of one channel. Prefetches the data `ahead` floats further.
HWY_INLINE void transform_sums(const float* u, std::size_t plane, std::size_t ahead, float* nine,
                               std::size_t stride) {
  Vector half[3][6];
  HWY_UNROLL(1)
  for (std::size_t j = 0; j < 6; ++j) {
    Vector d[6], column[3];
    load_six(u + j * plane, 6 * plane, d);
    HWY_UNROLL(6)
    for (std::size_t i = 0; i < 6; ++i) {
      __builtin_prefetch(u + (6 * i + j) * plane + ahead, 0, 2);
    }
    weight_adjoint(d[0], d[1], d[2], d[3], d[4], d[5], column);
    HWY_UNROLL(3)
    for (std::size_t i = 0; i < 3; ++i) half[i][j] = column[i];
  }
  HWY_UNROLL(1)
  for (std::size_t i = 0; i < 3; ++i) {
    Vector row[3];
    weight_adjoint(half[i][0], half[i][1], half[i][2], half[i][3], half[i][4], half[i][5], row);
    HWY_UNROLL(3)
    for (std::size_t j = 0; j < 3; ++j) store(row[j], nine + (3 * i + j) * stride);
  }
}

// Computes dw in squares of filters and channels, so that it is written in whole lines, in the
// order of the planes in memory.
template <class T>
HWY_INLINE void gradient(const WinogradShape& s, const float* sums, T* dw, bool accumulate) {
  alignas(64) float nine[9][kSquare][kWidth];    // channel, filter
  alignas(64) float turned[kWidth][9][kSquare];  // filter, place, channel
  const auto square = [&](std::size_t c, std::size_t f, const float* u, std::size_t width) {
    for (std::size_t i = 0; i < kSquare; ++i) {
      transform_sums(u + i * width, s.plane(), kSquare * width, nine[0][i], kSquare * kWidth);
    }
    for (std::size_t k = 0; k < 9; ++k) {
      for (std::size_t i = 0; i < kSquare; i += 4) {
        turn_four(nine[k][i], kWidth, &turned[0][k][i], 9 * kSquare);
      }
    }
    for (std::size_t i = 0; i < kWidth; ++i) {
      for (std::size_t k = 0; k < 9; ++k) {
        T* const to = dw + ((f + i) * 9 + k) * s.channels + c;
        for (std::size_t j = 0; j < kSquare; j += kWidth) {
          const Vector value = load(&turned[i][k][j]);
          store(accumulate ? hn::Add(load(to + j), value) : value, to + j);
        }
      }
    }
  };
  for (std::size_t column = 0; column < s.filters;) {
    const std::size_t width = panel_vectors(s.filters - column) * kWidth;
    for (std::size_t c = 0; c < s.channels; c += kSquare) {
      for (std::size_t f = 0; f < width; f += kWidth) {
        square(c, column + f, sums + column * s.channels + c * width + f, width);
      }
    }
    column += width;
  }
}

void WinogradWeightsWide(const WinogradShape& s, const float* w, float* forward, float* backward) {
  weights(s, w, forward, backward);
}
void WinogradWeightsNarrow(const WinogradShape& s, const BFloat16* w, float* forward,
                           float* backward) {
  if (s.pairs && backward != nullptr) {
    transform_pairs(s, w, backward);
    backward = nullptr;
  }
  weights(s, w, forward, backward);
}
void WinogradGradientWide(const WinogradShape& s, const float* sums, float* dw, bool accumulate) {
  gradient(s, sums, dw, accumulate);
}
void WinogradGradientNarrow(const WinogradShape& s, const float* sums, BFloat16* dw,
                            bool accumulate) {
  gradient(s, sums, dw, accumulate);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(WinogradWeightsWide);
HWY_EXPORT(WinogradWeightsNarrow);
HWY_EXPORT(WinogradGradientWide);
HWY_EXPORT(WinogradGradientNarrow);

template <>
void winograd_weights(const WinogradShape& shape, const float* w, float* forward, float* backward) {
  HWY_DYNAMIC_DISPATCH(WinogradWeightsWide)(shape, w, forward, backward);
}

template <>
void winograd_weights(const WinogradShape& shape, const BFloat16* w, float* forward,
                      float* backward) {
  HWY_DYNAMIC_DISPATCH(WinogradWeightsNarrow)(shape, w, forward, backward);
}

template <>
void winograd_gradient(const WinogradShape& shape, const float* sums, float* dw, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(WinogradGradientWide)(shape, sums, dw, accumulate);
}

template <>
void winograd_gradient(const WinogradShape& shape, const float* sums, BFloat16* dw,
                       bool accumulate) {
  HWY_DYNAMIC_DISPATCH(WinogradGradientNarrow)(shape, sums, dw, accumulate);
}

}  // namespace lockstep::engine::cpu
#endif
