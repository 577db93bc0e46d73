// SPDX-License-Identifier: MIT
// a is packed into strips of kStrip rows, one depth block after the other: block, strip, product,
// row. c is computed in panels of a few vectors of columns. kDepth rows of each panel of b are kept
// contiguous in the L2 cache and multiplied by all strips. b is thus read from memory once, and
// each strip is read sequentially. The first strip stores the rows of b that it reads. Every strip
// prefetches a share of the next rows of b while the core multiplies. A tile of kStrip rows and one
// panel of c stays in registers.
#include "engine/cpu/product_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/product_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "engine/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kStrip = Product::kStrip, kDepth = Product::kDepth;
constexpr std::size_t kVectors = kManyRegisters ? 4 : 2;  // per panel
constexpr std::size_t kColumns = kVectors * kWidth;       // per panel
static_assert(Product::kGroup % kColumns == 0);
constexpr std::size_t kLine = 16;                               // floats of a cache line
constexpr std::size_t kLines = (kColumns + kLine - 1) / kLine;  // cache lines per row of a panel

enum class Store { kPlain, kAdd, kStream };  // kStream: non-temporal

// Names the lines that a tile prefetches, one per four products: rows of kColumns floats, `stride`
// apart.
struct Ahead {
  const float* from = nullptr;
  std::size_t lines = 0, stride = 0;
};

// Computes R rows of c, one panel wide, as sums over `depth` products of a strip and the panel. The
// panel's rows are `step` floats apart and are copied if kCopy.
template <std::size_t R, Store kStore, bool kCopy>
HWY_INLINE void tile(const float* strip, const float* panel, std::size_t step, float* copy,
                     std::size_t depth, const Ahead& ahead, float* c, std::size_t stride) {
  Vector sums[R][kVectors];
  HWY_UNROLL(6)
  for (std::size_t i = 0; i < R; ++i) {
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < kVectors; ++j) {
      sums[i][j] = zero();
      if (kStore == Store::kAdd) __builtin_prefetch(c + i * stride + j * kWidth, 1);
    }
  }
  for (std::size_t k = 0; k < depth; ++k) {
    Vector b[kVectors];
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < kVectors; ++j) {
      b[j] = load(panel + k * step + j * kWidth);
      if (kCopy) store(b[j], copy + k * kColumns + j * kWidth);
    }
    HWY_UNROLL(6)
    for (std::size_t i = 0; i < R; ++i) {
      const Vector factor = all(strip[k * kStrip + i]);
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < kVectors; ++j) {
        sums[i][j] = hn::MulAdd(factor, b[j], sums[i][j]);
      }
    }
    if (k % 4 == 0 && k / 4 < ahead.lines) {
      const std::size_t line = k / 4;
      __builtin_prefetch(ahead.from + line / kLines * ahead.stride + line % kLines * kLine, 0, 2);
    }
  }
  HWY_UNROLL(6)
  for (std::size_t i = 0; i < R; ++i) {
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < kVectors; ++j) {
      float* const to = c + i * stride + j * kWidth;
      if (kStore == Store::kAdd) {
        store(hn::Add(load(to), sums[i][j]), to);
      } else if (kStore == Store::kStream) {
        hn::Stream(sums[i][j], kLanes, to);
      } else {
        store(sums[i][j], to);
      }
    }
  }
}

// Holds the values that all tiles of a panel share over one block of depth.
struct Block {
  const float* b = nullptr;           // the panel's first element
  std::size_t step = 0;               // distance between rows of b
  float* copy = nullptr;              // contiguous copy of the panel
  std::size_t depth = 0, stride = 0;  // block's depth; distance between rows of c
};

template <std::size_t R, Store kStore>
HWY_INLINE void tile(const Block& block, bool first, const float* strip, const Ahead& ahead,
                     float* c) {
  if (first) {
    tile<R, kStore, true>(strip, block.b, block.step, block.copy, block.depth, ahead, c,
                          block.stride);
  } else {
    tile<R, kStore, false>(strip, block.copy, kColumns, nullptr, block.depth, ahead, c,
                           block.stride);
  }
}

// Computes a tile of at most kStrip rows; the last strip may have fewer.
template <Store kStore>
HWY_NOINLINE void tile(std::size_t rows, const Block& block, bool first, const float* strip,
                       const Ahead& ahead, float* c) {
  switch (rows) {
    case 1:
      return tile<1, kStore>(block, first, strip, ahead, c);
    case 2:
      return tile<2, kStore>(block, first, strip, ahead, c);
    case 3:
      return tile<3, kStore>(block, first, strip, ahead, c);
    case 4:
      return tile<4, kStore>(block, first, strip, ahead, c);
    case 5:
      return tile<5, kStore>(block, first, strip, ahead, c);
    default:
      return tile<6, kStore>(block, first, strip, ahead, c);
  }
}

// Computes the columns beyond whole panels: b is padded with zeros, and c goes through a tile in
// local memory.
HWY_NOINLINE void narrow_panel(const Product& p, const float* packed, std::size_t column,
                               std::size_t k, std::size_t depth, bool add, float* panel) {
  const std::size_t width = p.columns - column;
  for (std::size_t i = 0; i < depth; ++i) {
    const float* const row = p.b + (k + i) * p.columns + column;
    std::fill(std::copy_n(row, width, panel + i * kColumns), panel + (i + 1) * kColumns, 0.0f);
  }
  alignas(64) float sums[kStrip * kColumns];
  const Block block{.copy = panel, .depth = depth, .stride = kColumns};
  for (std::size_t row = 0; row < p.rows; row += kStrip) {
    const std::size_t rows = std::min(kStrip, p.rows - row);
    tile<Store::kPlain>(rows, block, false, packed + row * depth, {}, sums);
    for (std::size_t i = 0; i < rows; ++i) {
      float* const to = p.c + (row + i) * p.columns + column;
      for (std::size_t j = 0; j < width; ++j) {
        to[j] = add ? to[j] + sums[i * kColumns + j] : sums[i * kColumns + j];
      }
    }
  }
}

void Pack(const Product& p, std::size_t first, std::size_t count, float* packed) {
  const std::size_t across = p.turned ? 1 : p.depth, along = p.turned ? p.rows : 1;
  for (std::size_t k = 0; k < p.depth; k += kDepth) {
    const std::size_t depth = std::min(kDepth, p.depth - k);
    for (std::size_t strip = first; strip < first + count; ++strip) {
      const std::size_t row = strip * kStrip, rows = std::min(kStrip, p.rows - row);
      const float* const from = p.a + row * across + k * along;
      float* const to = packed + k * p.strips() * kStrip + row * depth;
      for (std::size_t i = 0; i < depth; ++i) {
        for (std::size_t r = 0; r < rows; ++r) to[i * kStrip + r] = from[r * across + i * along];
      }
    }
  }
}

void Multiply(const Product& p, const float* packed, std::size_t first, std::size_t count,
              float* panel) {
  const std::size_t end = std::min(p.columns, (first + count) * Product::kGroup);
  // Uses non-temporal stores for results that are stored once and too large to stay in a cache.
  // They require whole vectors.
  const bool stream = p.depth <= kDepth && p.rows * p.columns >= kManyFloats &&
                      p.columns % kWidth == 0 && reinterpret_cast<std::uintptr_t>(p.c) % 64 == 0;
  for (std::size_t column = first * Product::kGroup; column < end; column += kColumns) {
    for (std::size_t k = 0; k < p.depth; k += kDepth) {
      const std::size_t depth = std::min(kDepth, p.depth - k);
      const bool add = p.add || k > 0;
      const float* const strips = packed + k * p.strips() * kStrip;
      if (column + kColumns > end) {
        narrow_panel(p, strips, column, k, depth, add, panel);
        continue;
      }
      const Block block{p.b + k * p.columns + column, p.columns, panel, depth, p.columns};
      // The next rows are those of this panel, or the first ones of the panel beside it.
      const bool below = k + depth < p.depth;
      const float* const next = below ? block.b + depth * p.columns : p.b + column + kColumns;
      const std::size_t next_rows = below ? std::min(kDepth, p.depth - k - depth)
                                    : column + 2 * kColumns <= end ? std::min(kDepth, p.depth)
                                                                   : 0;
      const std::size_t share = (next_rows + p.strips() - 1) / p.strips();
      for (std::size_t row = 0; row < p.rows; row += kStrip) {
        const std::size_t rows = std::min(kStrip, p.rows - row), asked = row / kStrip * share;
        Ahead ahead;
        if (asked < next_rows) {
          ahead = {next + asked * p.columns, std::min(share, next_rows - asked) * kLines,
                   p.columns};
        }
        float* const c = p.c + row * p.columns + column;
        if (add) {
          tile<Store::kAdd>(rows, block, row == 0, strips + row * depth, ahead, c);
        } else if (stream) {
          tile<Store::kStream>(rows, block, row == 0, strips + row * depth, ahead, c);
        } else {
          tile<Store::kPlain>(rows, block, row == 0, strips + row * depth, ahead, c);
        }
      }
    }
  }
  if (stream) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(Pack);
HWY_EXPORT(Multiply);

void pack(const Product& product, std::size_t first, std::size_t count, float* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(product, first, count, packed);
}

void multiply(const Product& product, const float* packed, std::size_t first, std::size_t count,
              float* panel) {
  HWY_DYNAMIC_DISPATCH(Multiply)(product, packed, first, count, panel);
}

}  // namespace lockstep::engine::cpu
#endif
