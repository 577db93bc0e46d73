// SPDX-License-Identifier: MIT
// Definitions shared by the kernels of lowered convolutions, once per instruction set (Highway's
// include idiom): panels, tables of rows, and the product of a strip of rows and a panel.
#if defined(LOCKSTEP_ENGINE_CPU_LOWERED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_CPU_LOWERED_INL_H_
#undef LOCKSTEP_ENGINE_CPU_LOWERED_INL_H_
#else
#define LOCKSTEP_ENGINE_CPU_LOWERED_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>

#include "engine/cpu/lowered_kernels.h"
#include "engine/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kStrip = LoweredShape::kStrip;
static_assert(LoweredShape::kColumns >= kPanel * kWidth);
static_assert(LoweredShape::kGroup % kWidth == 0);

// Returns the size of equal parts of `count` products: at most `most`, in multiples of 16.
HWY_INLINE std::size_t equal_parts(std::size_t count, std::size_t most) {
  const std::size_t parts = std::max<std::size_t>((count + most - 1) / most, 1);
  return std::max<std::size_t>(((count + parts - 1) / parts + 15) / 16 * 16, 16);
}

// Stores the addresses of the pixels of x that tap `tap` of output pixels [first, first + count)
// reads; `outside` for those in the padding. Pixels are numbered through all images.
template <class Float>
HWY_INLINE void tap_rows(const LoweredShape& s, Float* x, Float* outside, std::size_t tap,
                         std::size_t first, std::size_t count, Float** rows) {
  const std::size_t tap_down = tap / s.kernel_width, tap_across = tap % s.kernel_width;
  const std::size_t in_image = first % s.pixels();
  std::size_t down = in_image / s.output_width(), across = in_image % s.output_width();
  Float* image = x + first / s.pixels() * s.inputs();
  for (std::size_t r = 0; r < count; ++r) {
    // In the padding, negative differences wrap and exceed any height and width.
    const std::size_t i = down * s.stride + tap_down - s.padding;
    const std::size_t j = across * s.stride + tap_across - s.padding;
    rows[r] = i < s.height && j < s.width ? image + (i * s.width + j) * s.channels : outside;
    if (++across < s.output_width()) continue;
    across = 0;
    if (++down < s.output_height()) continue;
    down = 0;
    image += s.inputs();
  }
}

// Describes how the sums of a tile are stored.
struct Ending {
  bool add = false, stream = false;  // add: to the output; stream: non-temporal stores
  bool relu = false;
  const float* bias = nullptr;  // bias of the first column
};

template <std::size_t R, std::size_t V>
HWY_INLINE void end_tile(Vector (&sums)[R][V], float* const* c, std::size_t column,
                         const Ending& ending) {
  HWY_UNROLL(6)
  for (std::size_t i = 0; i < R; ++i) {
    float* const to = c[i] + column;
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) {
      if (ending.bias != nullptr) sums[i][j] = hn::Add(sums[i][j], load(ending.bias + j * kWidth));
      if (ending.add) sums[i][j] = hn::Add(load(to + j * kWidth), sums[i][j]);
      if (ending.relu) sums[i][j] = cut(sums[i][j]);
      if (ending.stream) {
        hn::Stream(sums[i][j], kLanes, to + j * kWidth);
      } else {
        store(sums[i][j], to + j * kWidth);
      }
    }
  }
}

// Computes R rows of c at `column`, V vectors wide, as sums over `depth` products of the panel and
// rows of a from element k on. If `next` says that they exist, it prefetches the next kStrip rows
// of a while the core multiplies.
template <std::size_t R, std::size_t V>
HWY_NOINLINE void tile(const float* const* a, std::size_t k, const float* panel, std::size_t depth,
                       float* const* c, std::size_t column, const Ending& ending, bool next) {
  constexpr std::size_t kLine = 16;
  const float* rows[R];
  Vector sums[R][V];
  HWY_UNROLL(6)
  for (std::size_t i = 0; i < R; ++i) {
    rows[i] = a[i] + k;
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) {
      sums[i][j] = zero();
      if (!ending.stream) __builtin_prefetch(c[i] + column + j * kWidth, 1);
    }
  }
  const auto multiply = [&](std::size_t p) HWY_ATTR {
    Vector b[V];
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) b[j] = load(panel + (p * V + j) * kWidth);
    HWY_UNROLL(6)
    for (std::size_t i = 0; i < R; ++i) {
      const Vector factor = all(rows[i][p]);
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < V; ++j) sums[i][j] = hn::MulAdd(factor, b[j], sums[i][j]);
    }
  };
  for (std::size_t p = 0; p < depth; p += kLine) {  // depths are multiples of kLine
    if (next) {
      HWY_UNROLL(6)
      for (std::size_t i = 0; i < kStrip; ++i) __builtin_prefetch(a[kStrip + i] + k + p);
    }
    for (std::size_t q = p; q < p + kLine; ++q) multiply(q);
  }
  end_tile<R, V>(sums, c, column, ending);
}

// Computes all `count` rows, strip by strip. `more` rows of a follow them.
template <std::size_t V>
HWY_INLINE void strips(const float* const* a, std::size_t count, std::size_t more, std::size_t k,
                       const float* panel, std::size_t depth, float* const* c, std::size_t column,
                       const Ending& ending) {
  std::size_t r = 0;
  for (; r + kStrip <= count; r += kStrip) {
    tile<kStrip, V>(a + r, k, panel, depth, c + r, column, ending, r + 2 * kStrip <= count + more);
  }
  switch (count - r) {
    case 1:
      return tile<1, V>(a + r, k, panel, depth, c + r, column, ending, false);
    case 2:
      return tile<2, V>(a + r, k, panel, depth, c + r, column, ending, false);
    case 3:
      return tile<3, V>(a + r, k, panel, depth, c + r, column, ending, false);
    case 4:
      return tile<4, V>(a + r, k, panel, depth, c + r, column, ending, false);
    case 5:
      return tile<5, V>(a + r, k, panel, depth, c + r, column, ending, false);
    default:
      return;
  }
}

inline HWY_NOINLINE void multiply(const float* const* a, std::size_t count, std::size_t more,
                                  std::size_t k, const float* panel, std::size_t depth,
                                  std::size_t vectors, float* const* c, std::size_t column,
                                  const Ending& ending) {
  if (vectors == kPanel) {
    strips<kPanel>(a, count, more, k, panel, depth, c, column, ending);
  } else if (vectors == 2) {
    strips<2>(a, count, more, k, panel, depth, c, column, ending);
  } else {
    strips<1>(a, count, more, k, panel, depth, c, column, ending);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#endif
