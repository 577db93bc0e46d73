// SPDX-License-Identifier: MIT
#include "engine/cpu/lowered_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/lowered_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/cpu/loops.h"
#include "engine/cpu/lowered-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

// Names lines that a tile prefetches, one with each product.
struct Ahead {
  const float* from = nullptr;
  std::size_t lines = 0;
};
constexpr std::size_t kLine = 16;

constexpr std::size_t kFewFloats = std::size_t{192} << 10;  // size of two blocks in the L2 cache

// Divides the data of the next block, dy and then x, among the tiles of the current one, which
// prefetch them while the core multiplies.
class NextBlock {
 public:
  NextBlock(const float* dy, std::size_t dy_lines, const float* x, std::size_t x_lines,
            std::size_t tiles)
      : dy_{dy, dy_lines},
        x_{x, x_lines},
        share_((dy_lines + x_lines + tiles - 1) / std::max<std::size_t>(tiles, 1)) {}
  Ahead share() {
    Ahead& from = dy_.lines > 0 ? dy_ : x_;
    const Ahead part{from.from, std::min(share_, from.lines)};
    from.from += part.lines * kLine;
    from.lines -= part.lines;
    return part;
  }

 private:
  Ahead dy_, x_;
  std::size_t share_;
};

// Locates a block's dy: pixels are `pixel` floats apart, strips of filters `strip` floats.
struct Gradients {
  const float* first = nullptr;
  std::size_t pixel = 0, strip = 0;
};

// Computes R rows of dw, V vectors wide, as sums over `depth` pixels of a strip of dy and a panel
// of x.
template <std::size_t R, std::size_t V>
HWY_NOINLINE void weight_tile(const float* strip, std::size_t pixel, const float* panel,
                              std::size_t depth, float* dw, std::size_t stride, bool add,
                              Ahead ahead) {
  Vector sums[R][V];
  float* rows[R];
  HWY_UNROLL(6)
  for (std::size_t i = 0; i < R; ++i) {
    rows[i] = dw + i * stride;
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) {
      sums[i][j] = zero();
      __builtin_prefetch(rows[i] + j * kWidth, 1);
    }
  }
  for (std::size_t p = 0; p < depth; ++p, strip += pixel) {
    Vector b[V];
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) b[j] = load(panel + (p * V + j) * kWidth);
    HWY_UNROLL(6)
    for (std::size_t i = 0; i < R; ++i) {
      const Vector factor = all(strip[i]);
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < V; ++j) sums[i][j] = hn::MulAdd(factor, b[j], sums[i][j]);
    }
    if (p < ahead.lines) __builtin_prefetch(ahead.from + p * kLine, 0, 2);
  }
  end_tile<R, V>(sums, rows, 0, {.add = add});
}

// Computes all filters, strip by strip.
template <std::size_t V>
HWY_INLINE void weight_tiles(const Gradients& dy, const float* panel, std::size_t depth,
                             std::size_t filters, float* dw, std::size_t stride, bool add,
                             NextBlock& next) {
  const float* strip = dy.first;
  for (std::size_t f = 0; f < filters; f += kStrip, strip += dy.strip, dw += kStrip * stride) {
    const Ahead ahead = next.share();
    if (filters - f >= kStrip) {
      weight_tile<kStrip, V>(strip, dy.pixel, panel, depth, dw, stride, add, ahead);
    } else if (filters - f == 4) {  // else 2: filters are even
      weight_tile<4, V>(strip, dy.pixel, panel, depth, dw, stride, add, ahead);
    } else {
      weight_tile<2, V>(strip, dy.pixel, panel, depth, dw, stride, add, ahead);
    }
  }
}

// Writes dy of `count` pixels in strips of filters: strip, pixel, filter. It works on few pixels
// and strips at a time, so that few cache lines are in flight. Each store of 8 floats overlaps the
// next 6, which are written after it.
inline HWY_NOINLINE void pack_gradients(const float* dy, std::size_t count, std::size_t filters,
                                        float* packed) {
  const hn::CappedTag<float, 8> lanes;
  constexpr std::size_t kTogether = 8;
  const std::size_t whole = (filters - 2) / kStrip;  // strips followed by 2 more floats
  for (std::size_t strip = 0; strip < whole; strip += kTogether) {
    const std::size_t end = std::min(strip + kTogether, whole);
    for (std::size_t p = 0; p < count; ++p) {
      for (std::size_t i = strip; i < end; ++i) {
        const float* const from = dy + p * filters + i * kStrip;
        float* const to = packed + (i * count + p) * kStrip;
        // A whole store for the last pixel would overwrite two floats of the next strip's first
        // pixel.
        if (p + 1 == count) {
          std::copy_n(from, kStrip, to);
          continue;
        }
        for (std::size_t j = 0; j < kStrip; j += hn::Lanes(lanes)) {
          hn::StoreU(hn::LoadU(lanes, from + j), lanes, to + j);
        }
      }
    }
  }
  for (std::size_t f = whole * kStrip; f < filters; f += kStrip) {
    for (std::size_t p = 0; p < count; ++p) {
      std::copy_n(dy + p * filters + f, std::min(kStrip, filters - f),
                  packed + f * count + p * kStrip);
    }
  }
}

// Adds the contribution of output pixels [first, first + count) to dw, or writes it. The following
// `more` pixels are needed soon.
inline HWY_NOINLINE void add_weights(const LoweredShape& s, const LoweredBackward& call,
                                     std::size_t first, std::size_t count, std::size_t more,
                                     bool add, const float* zeros, float* packed, float* panel,
                                     const float** rows) {
  // Reads dy in place while it stays in the L2 cache, otherwise from a copy in strips.
  Gradients dy{call.dy + first * s.filters, s.filters, kStrip};
  if (LoweredShape::kPixels * s.filters > kFewFloats) {
    pack_gradients(dy.first, count, s.filters, packed);
    dy = {packed, kStrip, kStrip * count};
  }
  const std::size_t stride = s.taps() * s.channels;
  const std::size_t after = first + count;
  const std::size_t dy_lines = more * s.filters / kLine;
  const std::size_t x_lines = s.plain() ? more * s.channels / kLine : 0;
  const std::size_t tiles = (s.filters + kStrip - 1) / kStrip * s.taps() *
                            ((s.channels + kPanel * kWidth - 1) / (kPanel * kWidth));
  NextBlock next(call.dy + after * s.filters, dy_lines, call.x + after * s.channels, x_lines,
                 tiles);
  for (std::size_t tap = 0; tap < s.taps(); ++tap) {
    tap_rows(s, call.x, zeros, tap, first, count, rows);
    for (std::size_t column = 0; column < s.channels;) {
      const std::size_t vectors = panel_vectors(s.channels - column), width = vectors * kWidth;
      for (std::size_t p = 0; p < count; ++p) {
        for (std::size_t j = 0; j < width; j += kWidth) {
          store(load(rows[p] + column + j), panel + p * width + j);
        }
      }
      float* const dw = call.dw + tap * s.channels + column;
      if (vectors == kPanel) {
        weight_tiles<kPanel>(dy, panel, count, s.filters, dw, stride, add, next);
      } else if (vectors == 2) {
        weight_tiles<2>(dy, panel, count, s.filters, dw, stride, add, next);
      } else {
        weight_tiles<1>(dy, panel, count, s.filters, dw, stride, add, next);
      }
      column += width;
    }
  }
}

// Adds the contribution of output pixels [first, first + count) to dx, or writes it if pixels map
// one to one.
inline HWY_NOINLINE void add_inputs(const LoweredShape& s, const LoweredBackward& call,
                                    std::size_t first, std::size_t count, bool stream, float* waste,
                                    const float** rows, float** results) {
  const std::size_t part = equal_parts(s.filters, LoweredShape::kDepth);
  for (std::size_t p = 0; p < count; ++p) rows[p] = call.dy + (first + p) * s.filters;
  for (std::size_t tap = 0; tap < s.taps(); ++tap) {
    tap_rows(s, call.dx, waste, tap, first, count, results);
    for (std::size_t column = 0; column < s.channels;) {
      const std::size_t vectors = panel_vectors(s.channels - column);
      const float* const panel = call.weights + (tap * s.channels + column) * s.filters;
      for (std::size_t k = 0; k < s.filters; k += part) {
        const Ending ending{.add = s.taps() > 1 || k > 0, .stream = stream};
        multiply(rows, count, 0, k, panel + k * vectors * kWidth, std::min(part, s.filters - k),
                 vectors, results, column, ending);
      }
      column += vectors * kWidth;
    }
  }
}

// Takes output pixels block by block: first the gradient of the weights, then that of the inputs
// while dy is in the cache.
void LoweredBackwardTarget(const LoweredShape& s, const LoweredBackward& call) {
  float* const zeros = aligned(call.scratch);
  std::fill_n(zeros, 2 * s.channels, 0.0f);
  float* const waste = zeros + s.channels;
  float* const panel = waste + s.channels;
  auto* const rows =
      reinterpret_cast<const float**>(panel + LoweredShape::kPixels * LoweredShape::kColumns);
  auto* const results = const_cast<float**>(rows + LoweredShape::kPixels);
  auto* const packed = reinterpret_cast<float*>(results + LoweredShape::kPixels);
  const std::size_t all_pixels = call.images * s.pixels();
  const std::size_t block = equal_parts(all_pixels, LoweredShape::kPixels);
  const std::size_t less = s.backward_block();
  const bool stream = s.plain() && equal_parts(s.filters, LoweredShape::kDepth) >= s.filters &&
                      all_pixels * s.channels >= kManyFloats &&
                      reinterpret_cast<std::uintptr_t>(call.dx) % 64 == 0;
  const bool fits = block * (s.filters + (s.plain() ? s.channels : 0)) <= kFewFloats;
  std::size_t cleared = 0;  // zeroed images of dx, if it accumulates
  for (std::size_t first = 0; first < all_pixels; first += block) {
    const std::size_t count = std::min(block, all_pixels - first), end = first + count;
    if (s.relu) {
      float* const dy = call.dy + first * s.filters;
      mask(call.y + first * s.filters, dy, dy, count * s.filters);
    }
    if (call.dw != nullptr) {
      const std::size_t more = fits ? std::min(block, all_pixels - end) : 0;
      add_weights(s, call, first, count, more, call.accumulate || first > 0, zeros, packed, panel,
                  rows);
    }
    if (call.dx == nullptr) continue;
    for (; !s.plain() && cleared * s.pixels() < end; ++cleared) {
      std::fill_n(call.dx + cleared * s.inputs(), s.inputs(), 0.0f);
    }
    for (std::size_t at = first; at < end; at += less) {
      add_inputs(s, call, at, std::min(less, end - at), stream, waste, rows, results);
    }
  }
  if (stream) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(LoweredBackwardTarget);

void lowered_backward(const LoweredShape& shape, const LoweredBackward& call) {
  HWY_DYNAMIC_DISPATCH(LoweredBackwardTarget)(shape, call);
}

}  // namespace lockstep::engine::cpu
#endif
