// SPDX-License-Identifier: MIT
#include "engine/cpu/wide_convolution.h"

#include <algorithm>

#include "engine/cpu/bfloat16_loops.h"

namespace lockstep::engine::cpu {
namespace {

// Returns the floats of the widened operands: weights and bias, x and dx, y or dy.
std::size_t floats_of_piece(const ConvolutionSpec& s, std::size_t piece) {
  return whole_lines(s.weights() + s.filters) + 2 * whole_lines(piece * s.inputs()) +
         piece * s.outputs();
}

}  // namespace

WideConvolutions::WideConvolutions(Library& library)
    : library_(library), wide_(library, Kernels::kDirect) {}

std::size_t WideConvolutions::piece(const ConvolutionSpec& s, std::size_t rows) const {
  return std::min(rows, rows_of_piece(s, library_.threads()));
}

KernelMemory WideConvolutions::memory(const ConvolutionSpec& s, std::size_t planned) const {
  KernelMemory memory = wide_.memory(s, planned);
  memory.between += floats_of_piece(s, piece(s, planned)) * sizeof(float);
  return memory;
}

void WideConvolutions::forward(const ConvolutionSpec& s, std::size_t rows, const BFloat16* x,
                               const BFloat16* w, const BFloat16* b, BFloat16* y) {
  const std::size_t most = piece(s, rows);
  float* const w32 = library_.widened(floats_of_piece(s, most));
  float* const b32 = w32 + s.weights();
  float* const x32 = w32 + whole_lines(s.weights() + s.filters);
  float* const y32 = x32 + 2 * whole_lines(most * s.inputs());
  widen(w, w32, s.weights());
  if (b != nullptr) widen(b, b32, s.filters);
  for (std::size_t row = 0; row < rows; row += most) {
    const std::size_t count = std::min(most, rows - row);
    widen(x + row * s.inputs(), x32, count * s.inputs());
    wide_.forward(s, {count, count}, x32, w32, b == nullptr ? nullptr : b32, y32);
    narrow(y32, y + row * s.outputs(), count * s.outputs());
  }
}

void WideConvolutions::backward(const ConvolutionSpec& s, std::size_t rows, const BFloat16* x,
                                const BFloat16* y, BFloat16* dy, const BFloat16* w, BFloat16* dx,
                                float* dw, float* db) {
  ConvolutionSpec linear = s;  // dy is masked here
  linear.activation = Activation::kNone;
  if (s.activation == Activation::kRelu) mask(y, dy, dy, rows * s.outputs());
  const std::size_t most = piece(s, rows);
  float* const w32 = library_.widened(floats_of_piece(s, most));
  float* const x32 = w32 + whole_lines(s.weights() + s.filters);
  float* const dx32 = x32 + whole_lines(most * s.inputs());
  float* const dy32 = dx32 + whole_lines(most * s.inputs());
  widen(w, w32, s.weights());
  std::size_t row = 0;
  do {
    const std::size_t count = std::min(most, rows - row);
    widen(x + row * s.inputs(), x32, count * s.inputs());
    widen(dy + row * s.outputs(), dy32, count * s.outputs());
    wide_.backward(linear, {count, count}, x32, nullptr, dy32, w32, dx == nullptr ? nullptr : dx32,
                   dw, db, row > 0);
    if (dx != nullptr) narrow(dx32, dx + row * s.inputs(), count * s.inputs());
    row += count;
  } while (row < rows);
}

}  // namespace lockstep::engine::cpu
