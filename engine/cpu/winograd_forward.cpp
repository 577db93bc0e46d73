// SPDX-License-Identifier: MIT
#include "engine/cpu/winograd_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/winograd_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/cpu/winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

// Stores the 4x4 outputs of a tile that lie inside the image, for kWidth filters.
template <class T>
HWY_INLINE void store_tile(const WinogradShape& s, const TilePlace& place, const Vector y[4][4],
                           T* image) {
  const std::size_t down = 4 * place.down, across = 4 * place.across;
  const std::size_t rows = std::min<std::size_t>(4, s.output_height() - down);
  const std::size_t columns = std::min<std::size_t>(4, s.output_width() - across);
  T* to = image + (down * s.output_width() + across) * s.filters;
  if (rows == 4 && columns == 4) {
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < 4; ++i) {
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < 4; ++j) {
        store(y[i][j], to + (i * s.output_width() + j) * s.filters);
      }
    }
    return;
  }
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      store(y[i][j], to + (i * s.output_width() + j) * s.filters);
    }
  }
}

// Replaces the best by `value` at position `number` if it is larger, or if it is the first NaN.
HWY_INLINE void larger(Vector value, float number, Vector& best, Vector& at) {
  const auto wins = hn::Or(hn::Gt(value, best), hn::And(hn::Ne(value, value), hn::Eq(best, best)));
  best = hn::IfThenElse(wins, value, best);
  at = hn::IfThenElse(wins, all(number), at);
}

// Stores the maximum of each 2x2 window and its position.
template <class T>
HWY_INLINE void store_pooled(const WinogradShape& s, const TilePlace& place, const Vector y[4][4],
                             T* image, std::uint8_t* places) {
  const std::size_t down = 2 * place.down, across = 2 * place.across;
  const std::size_t height = s.output_height() / 2, width = s.output_width() / 2;
  HWY_UNROLL(2)
  for (std::size_t i = 0; i < 2; ++i) {
    HWY_UNROLL(2)
    for (std::size_t j = 0; j < 2; ++j) {
      Vector best = y[2 * i][2 * j], at = zero();
      larger(y[2 * i][2 * j + 1], 1, best, at);
      larger(y[2 * i + 1][2 * j], 2, best, at);
      larger(y[2 * i + 1][2 * j + 1], 3, best, at);
      if (s.relu) {
        at = hn::IfThenElse(hn::Le(best, zero()), all(4), at);
        best = cut(best);
      }
      if (down + i >= height || across + j >= width) continue;
      const std::size_t to = ((down + i) * width + across + j) * s.filters;
      store(best, image + to);
      const hn::Rebind<std::int32_t, Lanes> words;
      const hn::Rebind<std::uint8_t, Lanes> bytes;
      hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(words, at)), bytes, places + to);
    }
  }
}

// Computes y = A' M A of `count` tiles from number `first` on, and applies bias, ReLU and the pool.
template <class T>
HWY_NOINLINE void transform_outputs(const WinogradShape& s, const WinogradForward<T>& call,
                                    std::size_t first, std::size_t count, const float* m) {
  const std::size_t stride = s.output_stride();
  for (std::size_t t = 0; t < count; ++t) {
    const TilePlace place = tile_place(s, first + t);
    for (std::size_t f = 0; f < s.filters; f += kWidth) {
      const float* from = m + t * s.filters + f;
      Vector half[4][6];
      HWY_UNROLL(1)
      for (std::size_t j = 0; j < 6; ++j) {
        Vector d[6], column[4];
        load_six(from + j * stride, 6 * stride, d);
        output_transform(d[0], d[1], d[2], d[3], d[4], d[5], column);
        HWY_UNROLL(4)
        for (std::size_t i = 0; i < 4; ++i) half[i][j] = column[i];
      }
      const Vector bias = call.bias == nullptr ? zero() : load(call.bias + f);
      Vector y[4][4];
      HWY_UNROLL(1)
      for (std::size_t i = 0; i < 4; ++i) {
        const Vector* d = half[i];
        output_transform(d[0], d[1], d[2], d[3], d[4], d[5], y[i]);
        HWY_UNROLL(4)
        for (std::size_t j = 0; j < 4; ++j) {
          y[i][j] = hn::Add(y[i][j], bias);
          if (s.relu && !s.pool) y[i][j] = cut(y[i][j]);
        }
      }
      const std::size_t image = place.image * s.outputs() + f;
      if (s.pool) {
        store_pooled(s, place, y, call.y + image, call.places + image);
      } else {
        store_tile(s, place, y, call.y + image);
      }
    }
  }
}

// Takes blocks of tiles: transforms the inputs, multiplies plane by plane, and transforms back.
template <class T>
HWY_INLINE void forward(const WinogradShape& s, const WinogradForward<T>& call) {
  float* v = aligned(call.scratch);
  float* m = v + kPlanes * s.input_stride();
  PaddedImage<T> image(s, call.x, reinterpret_cast<T*>(aligned(m + kPlanes * s.output_stride())));
  const std::size_t all_tiles = call.images * s.tiles();
  for (std::size_t first = 0; first < all_tiles; first += s.forward_block()) {
    const std::size_t count = std::min(s.forward_block(), all_tiles - first);
    transform_inputs(s, image, first, count, v);
    for (std::size_t p = 0; p < kPlanes; ++p) {
      multiply(v + p * s.input_stride(), call.weights + p * s.plane(), count, s.channels, s.filters,
               m + p * s.output_stride());
    }
    transform_outputs(s, call, first, count, m);
  }
}

void WinogradForwardWide(const WinogradShape& s, const WinogradForward<float>& call) {
  forward(s, call);
}
void WinogradForwardNarrow(const WinogradShape& s, const WinogradForward<BFloat16>& call) {
  forward(s, call);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(WinogradForwardWide);
HWY_EXPORT(WinogradForwardNarrow);

void winograd_forward(const WinogradShape& shape, const WinogradForward<float>& call) {
  HWY_DYNAMIC_DISPATCH(WinogradForwardWide)(shape, call);
}

void winograd_forward(const WinogradShape& shape, const WinogradForward<BFloat16>& call) {
  HWY_DYNAMIC_DISPATCH(WinogradForwardNarrow)(shape, call);
}

}  // namespace lockstep::engine::cpu
#endif
