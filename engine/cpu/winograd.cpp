// SPDX-License-Identifier: MIT
#include "engine/cpu/winograd.h"

#include <algorithm>
#include <type_traits>

#include "engine/cpu/loops.h"
#include "engine/cpu/share_rows.h"

namespace lockstep::engine::cpu {
namespace {

// Holds the planes: weights for forward, weights for backward, then the sums and bias of each
// thread.
struct Planes {
  float *forward, *backward, *sums;
  std::size_t of_thread;
  Planes(const WinogradShape& shape, float* memory)
      : forward(memory),
        backward(memory + shape.plane_weights()),
        sums(backward + shape.plane_weights()),
        of_thread(shape.plane_weights() + shape.filters) {}
};

// Holds the scratch: a part per thread, then the planes unless the caller keeps them.
struct WinogradScratch {
  float* parts;
  std::size_t of_thread;
  float* planes;
  WinogradScratch(Library& library, const WinogradShape& shape, float* kept)
      : parts(reinterpret_cast<float*>(
            library.scratch(winograd_scratch(shape, library.threads(), kept == nullptr)))),
        of_thread(shape.scratch() + 16),
        planes(kept != nullptr ? kept : part(library.threads())) {}
  float* part(int thread) const { return parts + std::size_t(thread) * of_thread; }
};

}  // namespace

bool winograd_fits(const ConvolutionSpec& s) {
  return s.kernel_height == 3 && s.kernel_width == 3 && s.stride == 1 && s.padding <= 2 &&
         s.channels % 16 == 0 && s.filters % 16 == 0;
}

// Returns whether at least half of the tiles' outputs exist and there are enough tiles.
// Transforming the weights costs as much as some tiles, which must not outweigh the savings.
bool winograd_pays(const ConvolutionSpec& s, std::size_t rows) {
  constexpr std::size_t kOutputs = WinogradShape::kTile * WinogradShape::kTile, kFewTiles = 8;
  const std::size_t tiles = winograd_shape(s, false).tiles();
  return 2 * s.output_height() * s.output_width() >= kOutputs * tiles && rows * tiles >= kFewTiles;
}

bool winograd_pays_forward_in_bfloat16(const ConvolutionSpec& s, std::size_t rows) {
  constexpr std::size_t kOutputs = WinogradShape::kTile * WinogradShape::kTile;
  const std::size_t tiles = winograd_shape(s, false).tiles();
  return 4 * s.output_height() * s.output_width() >= 3 * kOutputs * tiles &&
         4 * rows * tiles >= s.channels + s.filters;
}

WinogradShape winograd_shape(const ConvolutionSpec& s, bool pool) {
  return {s.height, s.width, s.channels, s.filters, s.padding, s.activation == Activation::kRelu,
          pool};
}

std::size_t winograd_planes(const WinogradShape& shape, int threads) {
  return 2 * shape.plane_weights() + std::size_t(threads) * (shape.plane_weights() + shape.filters);
}

std::size_t winograd_scratch(const WinogradShape& shape, int threads, bool planes) {
  return (std::size_t(threads) * (shape.scratch() + 16) +
          (planes ? winograd_planes(shape, threads) : 0)) *
         sizeof(float);
}

template <class T>
void winograd_forward(Library& library, const WinogradShape& shape, std::size_t rows, const T* x,
                      const T* w, const T* b, T* y, const WinogradMemory& memory, Slice slice) {
  const WinogradScratch scratch(library, shape, memory.planes);
  const Planes planes(shape, scratch.planes);
  if (slice.first) winograd_weights(shape, w, planes.forward, nullptr);
  share_rows(library.threads(), rows, [&](int thread, std::size_t first, std::size_t count) {
    winograd_forward(
        shape,
        WinogradForward<T>{.images = count,
                           .x = x + first * shape.inputs(),
                           .weights = planes.forward,
                           .bias = b,
                           .y = y + first * shape.outputs(),
                           .places = shape.pool ? memory.places + first * shape.outputs() : nullptr,
                           .scratch = scratch.part(thread)});
  });
}

template <class T>
void winograd_backward(Library& library, WinogradShape shape, std::size_t rows, const T* x,
                       const T* y, const T* dy, const T* w, T* dx, T* dw, T* db,
                       const WinogradMemory& memory, bool accumulate, Slice slice) {
  shape.pairs = std::is_same_v<T, BFloat16> && winograd_has_pairs();
  const WinogradScratch scratch(library, shape, memory.planes);
  const Planes planes(shape, scratch.planes);
  const int threads = library.threads();
  if (slice.first) {
    winograd_weights(shape, w, nullptr, dx == nullptr ? nullptr : planes.backward);
  }
  share_rows(threads, rows, [&](int thread, std::size_t first, std::size_t count) {
    float* const sums = planes.sums + std::size_t(thread) * planes.of_thread;
    float* const bias = sums + shape.plane_weights();
    if (slice.first)
      std::fill(count > 0 && dw != nullptr ? bias : sums, sums + planes.of_thread, 0.0f);
    if (count == 0) return;
    winograd_backward(shape,
                      WinogradBackward<T>{
                          .images = count,
                          .x = x + first * shape.inputs(),
                          .y = y == nullptr ? nullptr : y + first * shape.outputs(),
                          .places = shape.pool ? memory.places + first * shape.outputs() : nullptr,
                          .dy = dy + first * shape.outputs(),
                          .weights = planes.backward,
                          .dx = dx == nullptr ? nullptr : dx + first * shape.inputs(),
                          .sums = dw == nullptr ? nullptr : sums,
                          .fresh = slice.first,
                          .bias = db == nullptr ? nullptr : bias,
                          .scratch = scratch.part(thread)});
  });
  if (!slice.last) return;
  for (int thread = 1; thread < threads; ++thread) {
    const float* sums = planes.sums + std::size_t(thread) * planes.of_thread;
    add(planes.sums, sums, planes.sums, planes.of_thread);
  }
  if (dw != nullptr) winograd_gradient(shape, planes.sums, dw, accumulate);
  const float* const bias = planes.sums + shape.plane_weights();
  for (std::size_t f = 0; db != nullptr && f < shape.filters; ++f) {
    db[f] = T(accumulate ? db[f] + bias[f] : bias[f]);
  }
}

template void winograd_forward(Library&, const WinogradShape&, std::size_t, const float*,
                               const float*, const float*, float*, const WinogradMemory&, Slice);
template void winograd_forward(Library&, const WinogradShape&, std::size_t, const BFloat16*,
                               const BFloat16*, const BFloat16*, BFloat16*, const WinogradMemory&,
                               Slice);
template void winograd_backward(Library&, WinogradShape, std::size_t, const float*, const float*,
                                const float*, const float*, float*, float*, float*,
                                const WinogradMemory&, bool, Slice);
template void winograd_backward(Library&, WinogradShape, std::size_t, const BFloat16*,
                                const BFloat16*, const BFloat16*, const BFloat16*, BFloat16*,
                                BFloat16*, BFloat16*, const WinogradMemory&, bool, Slice);

}  // namespace lockstep::engine::cpu
