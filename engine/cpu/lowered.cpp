// SPDX-License-Identifier: MIT
#include "engine/cpu/lowered.h"

#include <algorithm>

#include "engine/cpu/loops.h"
#include "engine/cpu/lowered_kernels.h"
#include "engine/cpu/share_rows.h"

namespace lockstep::engine::cpu {
namespace {

LoweredShape lowered_shape(const ConvolutionSpec& s) {
  return {s.height,  s.width,         s.channels,
          s.filters, s.kernel_height, s.kernel_width,
          s.stride,  s.padding,       s.activation == Activation::kRelu};
}

// Returns the floats of scratch: the weights in the kernels' layout; for backward, also the sums of
// all threads except the first, which uses dw; then a part per thread.
std::size_t forward_floats(const LoweredShape& shape, int threads) {
  return shape.weights() + std::size_t(threads) * whole_lines(shape.forward_scratch());
}
std::size_t backward_floats(const LoweredShape& shape, int threads) {
  return std::size_t(threads) * (shape.weights() + whole_lines(shape.backward_scratch()));
}

float* scratch_floats(Library& library, std::size_t count) {
  return reinterpret_cast<float*>(library.scratch(count * sizeof(float)));
}

}  // namespace

bool lowered_fits(const ConvolutionSpec& s) {
  return s.channels % 16 == 0 && s.filters % 16 == 0;
}

// The library's kernels skip products with padding and keep their sums in registers for all taps.
// They win if few channels share the cost of a row. With stride 1 they win for all windows except
// one pixel; with larger strides only if there are few channels or filters.
bool lowered_pays(const ConvolutionSpec& s) {
  if (s.kernel_height * s.kernel_width == 1) return s.channels + s.filters >= 64;
  return s.stride > 1 && std::min(s.channels, s.filters) >= 128;
}

std::size_t lowered_scratch(const ConvolutionSpec& s, int threads) {
  const LoweredShape shape = lowered_shape(s);
  return std::max(forward_floats(shape, threads), backward_floats(shape, threads)) * sizeof(float);
}

void lowered_forward(Library& library, const ConvolutionSpec& s, std::size_t rows, const float* x,
                     const float* w, const float* b, float* y) {
  if (rows == 0) return;
  const LoweredShape shape = lowered_shape(s);
  const int threads = library.threads();
  float* const weights = scratch_floats(library, forward_floats(shape, threads));
  share_rows(threads, shape.groups(), [&](int, std::size_t first, std::size_t count) {
    lowered_weights(shape, w, first, count, weights, nullptr);
  });
  float* const parts = weights + shape.weights();
  share_rows(threads, rows, [&](int thread, std::size_t first, std::size_t count) {
    lowered_forward(
        shape, {.images = count,
                .x = x + first * shape.inputs(),
                .weights = weights,
                .bias = b,
                .y = y + first * shape.outputs(),
                .scratch = parts + std::size_t(thread) * whole_lines(shape.forward_scratch())});
  });
}

void lowered_backward(Library& library, const ConvolutionSpec& s, std::size_t rows, const float* x,
                      const float* y, float* dy, const float* w, float* dx, float* dw, float* db,
                      bool accumulate) {
  const LoweredShape shape = lowered_shape(s);
  const int threads = library.threads();
  float* const weights = scratch_floats(library, backward_floats(shape, threads));
  float* const sums = weights;  // thread 1's at weights + shape.weights()
  float* const parts = weights + std::size_t(threads) * shape.weights();
  if (dx != nullptr) {
    share_rows(threads, shape.groups(), [&](int, std::size_t first, std::size_t count) {
      lowered_weights(shape, w, first, count, nullptr, weights);
    });
  }
  share_rows(threads, rows, [&](int thread, std::size_t first, std::size_t count) {
    const bool adds = thread == 0 && accumulate;
    float* const to = thread == 0 ? dw : sums + std::size_t(thread) * shape.weights();
    if (dw != nullptr && count == 0 && !adds) std::fill_n(to, shape.weights(), 0.0f);
    lowered_backward(
        shape, {.images = count,
                .x = x + first * shape.inputs(),
                .y = shape.relu ? y + first * shape.outputs() : nullptr,
                .dy = dy + first * shape.outputs(),
                .weights = weights,
                .dx = dx == nullptr ? nullptr : dx + first * shape.inputs(),
                .dw = dw == nullptr ? nullptr : to,
                .accumulate = adds,
                .scratch = parts + std::size_t(thread) * whole_lines(shape.backward_scratch())});
  });
  for (int thread = 1; dw != nullptr && thread < threads; ++thread) {
    add(dw, sums + std::size_t(thread) * shape.weights(), dw, shape.weights());
  }
  if (s.bias && db != nullptr) column_sums(dy, rows * shape.pixels(), s.filters, db, accumulate);
}

}  // namespace lockstep::engine::cpu
