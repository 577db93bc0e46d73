// SPDX-License-Identifier: MIT
#include "engine/cpu/lowered_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/lowered_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/cpu/lowered-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

// Converts the layout of the weights. Forward: panel of filters, tap, channel, filter. Backward:
// tap, panel of channels, filter, channel.
void LoweredWeights(const LoweredShape& s, const float* w, std::size_t first, std::size_t count,
                    float* forward, float* backward) {
  constexpr std::size_t kGroup = LoweredShape::kGroup;
  const std::size_t depth = s.taps() * s.channels, end = (first + count) * kGroup;
  for (std::size_t column = 0; forward != nullptr && column < end;) {
    const std::size_t width = panel_vectors(s.filters - column) * kWidth;
    const std::size_t from = std::max(column, first * kGroup), to = std::min(column + width, end);
    float* const panel = forward + column * depth;
    for (std::size_t f = from; f < to; f += 4) {
      for (std::size_t k = 0; k < depth; k += kWidth) {
        turn_four(w + f * depth + k, depth, panel + k * width + (f - column), width);
      }
    }
    column += width;
  }
  for (std::size_t tap = 0; backward != nullptr && tap < s.taps(); ++tap) {
    for (std::size_t column = 0; column < s.channels;) {
      const std::size_t width = panel_vectors(s.channels - column) * kWidth;
      float* const panel = backward + (tap * s.channels + column) * s.filters;
      for (std::size_t f = first * kGroup; f < end; ++f) {
        const float* const from = w + f * depth + tap * s.channels + column;
        for (std::size_t j = 0; j < width; j += kWidth) {
          store(load(from + j), panel + f * width + j);
        }
      }
      column += width;
    }
  }
}

// Loops over blocks of pixels, panels of filters, taps, parts of the channels, and strips of
// pixels.
void LoweredForwardTarget(const LoweredShape& s, const LoweredForward& call) {
  float* const zeros = aligned(call.scratch);
  std::fill_n(zeros, s.channels, 0.0f);
  const std::size_t block = s.forward_block(), stride = block + kStrip, taps = s.taps();
  auto* const rows = reinterpret_cast<const float**>(aligned(zeros + s.channels));
  auto* const results = const_cast<float**>(rows + taps * stride);
  const std::size_t all_pixels = call.images * s.pixels(), depth = taps * s.channels;
  const std::size_t part = equal_parts(s.channels, LoweredShape::kDepth);
  // Uses non-temporal stores for results that are stored once and too large to stay in a cache.
  const bool stream = taps == 1 && part >= s.channels && all_pixels * s.filters >= kManyFloats &&
                      reinterpret_cast<std::uintptr_t>(call.y) % 64 == 0;
  for (std::size_t first = 0; first < all_pixels; first += block) {
    const std::size_t count = std::min(block, all_pixels - first);
    const std::size_t more = std::min(all_pixels - first - count, kStrip);
    for (std::size_t tap = 0; tap < taps; ++tap) {
      tap_rows(s, call.x, static_cast<const float*>(zeros), tap, first, count + more,
               rows + tap * stride);
    }
    for (std::size_t r = 0; r < count; ++r) results[r] = call.y + (first + r) * s.filters;
    for (std::size_t column = 0; column < s.filters;) {
      const std::size_t vectors = panel_vectors(s.filters - column);
      const float* const panel = call.weights + column * depth;
      for (std::size_t tap = 0; tap < taps; ++tap) {
        for (std::size_t k = 0; k < s.channels; k += part) {
          const bool begin = tap + k == 0, end = tap + 1 == taps && k + part >= s.channels;
          const Ending ending{!begin, stream, s.relu && end,
                              begin && call.bias != nullptr ? call.bias + column : nullptr};
          multiply(rows + tap * stride, count, column == 0 ? more : 0, k,
                   panel + (tap * s.channels + k) * vectors * kWidth,
                   std::min(part, s.channels - k), vectors, results, column, ending);
        }
      }
      column += vectors * kWidth;
    }
  }
  if (stream) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(LoweredWeights);
HWY_EXPORT(LoweredForwardTarget);

void lowered_weights(const LoweredShape& shape, const float* w, std::size_t first,
                     std::size_t count, float* forward, float* backward) {
  HWY_DYNAMIC_DISPATCH(LoweredWeights)(shape, w, first, count, forward, backward);
}

void lowered_forward(const LoweredShape& shape, const LoweredForward& call) {
  HWY_DYNAMIC_DISPATCH(LoweredForwardTarget)(shape, call);
}

}  // namespace lockstep::engine::cpu
#endif
