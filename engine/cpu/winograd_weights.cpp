// SPDX-License-Identifier: MIT
#include "engine/cpu/winograd_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/winograd_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/cpu/winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

// G g G' of kWidth channels of one filter.
template <class T>
HWY_INLINE void transform_weight(const WinogradShape& s, const T* w, Vector u[36]) {
  Vector half[6][3];
  for (std::size_t j = 0; j < 3; ++j) {
    Vector column[6];
    weight_transform(load(w + j * s.channels), load(w + (3 + j) * s.channels),
                     load(w + (6 + j) * s.channels), column);
    for (std::size_t i = 0; i < 6; ++i) half[i][j] = column[i];
  }
  for (std::size_t i = 0; i < 6; ++i) {
    weight_transform(half[i][0], half[i][1], half[i][2], u + 6 * i);
  }
}

// Squares of kWidth filters and channels: as they come for backward, turned for forward.
// With `pairs` those for backward are bfloat16, in words of two neighbouring filters.
template <class T>
HWY_INLINE void weights(const WinogradShape& s, const T* w, float* forward, float* backward) {
  const std::size_t plane = s.channels * s.filters;
  alignas(64) float square[kPlanes][kWidth][kWidth];  // plane, filter, channel
  for (std::size_t f = 0; f < s.filters; f += kWidth) {
    for (std::size_t c = 0; c < s.channels; c += kWidth) {
      for (std::size_t i = 0; i < kWidth; ++i) {
        Vector u[kPlanes];
        transform_weight(s, w + (f + i) * 9 * s.channels + c, u);
        for (std::size_t p = 0; p < kPlanes; ++p) store(u[p], square[p][i]);
        if (backward == nullptr) continue;
        if (s.pairs) {
          auto* const words = reinterpret_cast<std::uint32_t*>(backward) +
                              in_panels(s.filters / 2, s.channels, (f + i) / 2, c);
          for (std::size_t p = 0; p < kPlanes; ++p) {
            store_half(rounded_words(kLanes, u[p]), i % 2 == 1, words + p * (plane / 2));
          }
          continue;
        }
        float* to = backward + in_panels(s.filters, s.channels, f + i, c);
        for (std::size_t p = 0; p < kPlanes; ++p) store(u[p], to + p * plane);
      }
      if (forward == nullptr) continue;
      for (std::size_t k = 0; k < kWidth; ++k) {
        float* to = forward + in_panels(s.channels, s.filters, c + k, f);
        for (std::size_t p = 0; p < kPlanes; ++p) {
          for (std::size_t i = 0; i < kWidth; ++i) to[p * plane + i] = square[p][i][k];
        }
      }
    }
  }
}

template <class T>
HWY_INLINE void gradient(const WinogradShape& s, const float* sums, T* dw, bool accumulate) {
  const std::size_t plane = s.channels * s.filters;
  alignas(64) float nine[9][kWidth];
  for (std::size_t f = 0; f < s.filters; f += kWidth) {
    for (std::size_t c = 0; c < s.channels; ++c) {
      const float* u = sums + in_panels(s.channels, s.filters, c, f);
      Vector half[3][6];
      for (std::size_t j = 0; j < 6; ++j) {
        Vector column[3];
        weight_adjoint(load(u + j * plane), load(u + (6 + j) * plane), load(u + (12 + j) * plane),
                       load(u + (18 + j) * plane), load(u + (24 + j) * plane),
                       load(u + (30 + j) * plane), column);
        for (std::size_t i = 0; i < 3; ++i) half[i][j] = column[i];
      }
      for (std::size_t i = 0; i < 3; ++i) {
        Vector row[3];
        weight_adjoint(half[i][0], half[i][1], half[i][2], half[i][3], half[i][4], half[i][5], row);
        for (std::size_t j = 0; j < 3; ++j) store(row[j], nine[3 * i + j]);
      }
      for (std::size_t i = 0; i < kWidth; ++i) {
        T* to = dw + (f + i) * 9 * s.channels + c;
        for (std::size_t k = 0; k < 9; ++k) {
          to[k * s.channels] = T(accumulate ? to[k * s.channels] + nine[k][i] : nine[k][i]);
        }
      }
    }
  }
}

void WinogradWeightsWide(const WinogradShape& s, const float* w, float* forward, float* backward) {
  weights(s, w, forward, backward);
}
void WinogradWeightsNarrow(const WinogradShape& s, const BFloat16* w, float* forward,
                           float* backward) {
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
