// SPDX-License-Identifier: MIT
#include "engine/cpu/few_channels_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/few_channels_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kGroup = FewChannelsShape::kGroup;
constexpr std::size_t kPixels = 6;                        // adjacent outputs
constexpr std::size_t kManyPixels = 13;                   // if there are enough registers
constexpr std::size_t kVectors = kManyRegisters ? 2 : 1;  // vectors of filters at once

// Returns the image padded with zeros: the image itself, or a copy whose frame is already zero.
inline HWY_NOINLINE const float* padded(const FewChannelsShape& s, const float* image,
                                        float* memory) {
  if (s.padding == 0) return image;
  const std::size_t row = s.width * s.channels;
  for (std::size_t y = 0; y < s.height; ++y) {
    const std::size_t to = ((y + s.padding) * s.padded_width() + s.padding) * s.channels;
    std::memcpy(memory + to, image + y * row, row * sizeof(float));
  }
  return memory;
}

inline HWY_NOINLINE const float* padded(const FewChannelsShape& s, const BFloat16* image,
                                        float* memory) {
  const std::size_t row = s.width * s.channels;
  for (std::size_t y = 0; y < s.height; ++y) {
    float* const to = memory + ((y + s.padding) * s.padded_width() + s.padding) * s.channels;
    const BFloat16* const from = image + y * row;
    std::size_t i = 0;
    for (; i + kWidth <= row; i += kWidth) store(load(from + i), to + i);
    for (; i < row; ++i) to[i] = from[i];
  }
  return memory;
}

// Computes P adjacent outputs of V vectors of filters.
template <std::size_t P, std::size_t V, class T>
HWY_INLINE void outputs(const FewChannelsShape& s, const float* x, const float* w, const T* bias,
                        T* y) {
  Vector sums[P][V];
  HWY_UNROLL(2)
  for (std::size_t j = 0; j < V; ++j) {
    const Vector start = bias == nullptr ? zero() : load(bias + j * kWidth);
    HWY_UNROLL(13)
    for (std::size_t p = 0; p < P; ++p) sums[p][j] = start;
  }
  const std::size_t step = s.stride * s.channels, row = s.kernel_width * s.channels;
  for (std::size_t ky = 0; ky < s.kernel_height; ++ky) {
    const float* from = x + ky * s.padded_width() * s.channels;
    for (std::size_t k = 0; k < row; ++k, w += s.filters) {
      Vector b[V];
      HWY_UNROLL(2)
      for (std::size_t j = 0; j < V; ++j) b[j] = load(w + j * kWidth);
      HWY_UNROLL(13)
      for (std::size_t p = 0; p < P; ++p) {
        const Vector factor = all(from[p * step + k]);
        HWY_UNROLL(2)
        for (std::size_t j = 0; j < V; ++j) sums[p][j] = hn::MulAdd(factor, b[j], sums[p][j]);
      }
    }
  }
  HWY_UNROLL(13)
  for (std::size_t p = 0; p < P; ++p) {
    T* const to = y + p * s.filters;
    HWY_UNROLL(2)
    for (std::size_t j = 0; j < V; ++j) sums[p][j] = s.relu ? cut(sums[p][j]) : sums[p][j];
    if constexpr (V == 2) {
      store_two<false>(kLanes, sums[p][0], sums[p][1], to);
    } else {
      store(sums[p][0], to);
    }
  }
}

// Computes one row of outputs for V vectors of filters. The last group of pixels may overlap the
// one before it.
template <std::size_t V, class T>
HWY_INLINE void output_row(const FewChannelsShape& s, const float* x, const float* w, const T* bias,
                           T* y) {
  const std::size_t width = s.output_width(), step = s.stride * s.channels;
  if (width < kPixels) {
    for (std::size_t p = 0; p < width; ++p) {
      outputs<1, V>(s, x + p * step, w, bias, y + p * s.filters);
    }
    return;
  }
  const auto groups = [&]<std::size_t P>(std::integral_constant<std::size_t, P>) {
    for (std::size_t p = 0; p < width; p += P) {
      const std::size_t at = std::min(p, width - P);
      outputs<P, V>(s, x + at * step, w, bias, y + at * s.filters);
    }
  };
  if (kManyRegisters && width % kManyPixels == 0) {
    groups(std::integral_constant<std::size_t, kManyPixels>());
  } else {
    groups(std::integral_constant<std::size_t, kPixels>());
  }
}

template <class T>
HWY_INLINE void forward(const FewChannelsShape& s, std::size_t images, const T* x, const float* w,
                        const T* bias, T* y, float* scratch) {
  std::memset(scratch, 0, s.scratch() * sizeof(float));
  for (std::size_t image = 0; image < images; ++image) {
    const float* from = padded(s, x + image * s.inputs(), scratch);
    for (std::size_t down = 0; down < s.output_height(); ++down) {
      const float* window = from + down * s.stride * s.padded_width() * s.channels;
      T* row = y + image * s.outputs() + down * s.output_width() * s.filters;
      std::size_t f = 0;
      for (; f + kVectors * kWidth <= s.filters; f += kVectors * kWidth) {
        output_row<kVectors>(s, window, w + f, bias == nullptr ? nullptr : bias + f, row + f);
      }
      for (; f < s.filters; f += kWidth) {
        output_row<1>(s, window, w + f, bias == nullptr ? nullptr : bias + f, row + f);
      }
    }
  }
}

// Sums one group of products of V vectors of filters over an image. Adds the sums of the bias
// unless `bias` is null.
template <std::size_t V, class T>
HWY_INLINE void group_sums(const FewChannelsShape& s, const float* x, const std::size_t* offsets,
                           const T* y, const T* dy, float* sums, float* bias) {
  Vector total[kGroup][V], of_bias[V];
  HWY_UNROLL(2)
  for (std::size_t j = 0; j < V; ++j) {
    of_bias[j] = zero();
    HWY_UNROLL(9)
    for (std::size_t k = 0; k < kGroup; ++k) total[k][j] = load(sums + k * s.filters + j * kWidth);
  }
  for (std::size_t down = 0; down < s.output_height(); ++down) {
    const float* window = x + down * s.stride * s.padded_width() * s.channels;
    for (std::size_t across = 0; across < s.output_width(); ++across) {
      const std::size_t at = (down * s.output_width() + across) * s.filters;
      Vector g[V];
      HWY_UNROLL(2)
      for (std::size_t j = 0; j < V; ++j) {
        g[j] = load(dy + at + j * kWidth);
        if (s.relu) g[j] = hn::IfThenElseZero(hn::Gt(load(y + at + j * kWidth), zero()), g[j]);
        of_bias[j] = hn::Add(of_bias[j], g[j]);
      }
      HWY_UNROLL(9)
      for (std::size_t k = 0; k < kGroup; ++k) {
        const Vector factor = all(window[offsets[k]]);
        HWY_UNROLL(2)
        for (std::size_t j = 0; j < V; ++j) total[k][j] = hn::MulAdd(factor, g[j], total[k][j]);
      }
      window += s.stride * s.channels;
    }
  }
  HWY_UNROLL(2)
  for (std::size_t j = 0; j < V; ++j) {
    if (bias != nullptr) {
      store(hn::Add(load(bias + j * kWidth), of_bias[j]), bias + j * kWidth);
    }
    HWY_UNROLL(9)
    for (std::size_t k = 0; k < kGroup; ++k) store(total[k][j], sums + k * s.filters + j * kWidth);
  }
}

template <class T>
HWY_INLINE void gradient(const FewChannelsShape& s, std::size_t images, const T* x, const T* y,
                         const T* dy, float* sums, float* bias, float* scratch) {
  std::memset(scratch, 0, s.scratch() * sizeof(float));
  for (std::size_t image = 0; image < images; ++image) {
    const float* from = padded(s, x + image * s.inputs(), scratch);
    const std::size_t begin = image * s.outputs();
    for (std::size_t group = 0; group < s.groups(); ++group) {
      std::size_t offsets[kGroup];
      for (std::size_t k = 0; k < kGroup; ++k) {
        offsets[k] = group * kGroup + k < s.depth() ? s.offset(group * kGroup + k) : 0;
      }
      float* to = sums + group * kGroup * s.filters;
      float* const of_bias = group == 0 ? bias : nullptr;
      std::size_t f = 0;
      const T* const values = y == nullptr ? nullptr : y + begin;
      for (; f + kVectors * kWidth <= s.filters; f += kVectors * kWidth) {
        group_sums<kVectors>(s, from, offsets, values == nullptr ? nullptr : values + f,
                             dy + begin + f, to + f, of_bias == nullptr ? nullptr : of_bias + f);
      }
      for (; f < s.filters; f += kWidth) {
        group_sums<1>(s, from, offsets, values == nullptr ? nullptr : values + f, dy + begin + f,
                      to + f, of_bias == nullptr ? nullptr : of_bias + f);
      }
    }
  }
}

void FewChannelsForward(const FewChannelsShape& s, std::size_t images, const float* x,
                        const float* w, const float* bias, float* y, float* scratch) {
  forward(s, images, x, w, bias, y, scratch);
}
void FewChannelsForwardNarrow(const FewChannelsShape& s, std::size_t images, const BFloat16* x,
                              const float* w, const BFloat16* bias, BFloat16* y, float* scratch) {
  forward(s, images, x, w, bias, y, scratch);
}
void FewChannelsGradient(const FewChannelsShape& s, std::size_t images, const float* x,
                         const float* y, const float* dy, float* sums, float* bias,
                         float* scratch) {
  gradient(s, images, x, y, dy, sums, bias, scratch);
}
void FewChannelsGradientNarrow(const FewChannelsShape& s, std::size_t images, const BFloat16* x,
                               const BFloat16* y, const BFloat16* dy, float* sums, float* bias,
                               float* scratch) {
  gradient(s, images, x, y, dy, sums, bias, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(FewChannelsForward);
HWY_EXPORT(FewChannelsForwardNarrow);
HWY_EXPORT(FewChannelsGradient);
HWY_EXPORT(FewChannelsGradientNarrow);

template <>
void few_channels_forward(const FewChannelsShape& shape, std::size_t images, const float* x,
                          const float* w, const float* bias, float* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(FewChannelsForward)(shape, images, x, w, bias, y, scratch);
}

template <>
void few_channels_forward(const FewChannelsShape& shape, std::size_t images, const BFloat16* x,
                          const float* w, const BFloat16* bias, BFloat16* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(FewChannelsForwardNarrow)(shape, images, x, w, bias, y, scratch);
}

template <>
void few_channels_gradient(const FewChannelsShape& shape, std::size_t images, const float* x,
                           const float* y, const float* dy, float* sums, float* bias,
                           float* scratch) {
  HWY_DYNAMIC_DISPATCH(FewChannelsGradient)(shape, images, x, y, dy, sums, bias, scratch);
}

template <>
void few_channels_gradient(const FewChannelsShape& shape, std::size_t images, const BFloat16* x,
                           const BFloat16* y, const BFloat16* dy, float* sums, float* bias,
                           float* scratch) {
  HWY_DYNAMIC_DISPATCH(FewChannelsGradientNarrow)(shape, images, x, y, dy, sums, bias, scratch);
}

}  // namespace lockstep::engine::cpu
#endif
