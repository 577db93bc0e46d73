// SPDX-License-Identifier: MIT
#include "engine/cpu/pooled_convolution.h"

#include <algorithm>
#include <cstdint>

#include "engine/cpu/pool.h"

namespace lockstep::engine::cpu {
namespace {

constexpr std::uint8_t kCut = 255;  // cut by ReLU; not a position

}  // namespace

bool pooled_convolution_fits(const PooledConvolutionSpec& spec) {
  return spec.window * spec.window < kCut;
}

template <class T>
bool PooledConvolutions<T>::winograd(const PooledConvolutionSpec& spec, std::size_t planned) const {
  return spec.window == 2 && convolutions_.winograd(spec.convolution, planned);
}

// Returns the bytes of the planes of derived weights, if there are any. The places follow them.
template <class T>
std::size_t PooledConvolutions<T>::planes(const PooledConvolutionSpec& spec,
                                          std::size_t planned) const {
  if (!winograd(spec, planned)) return 0;
  return winograd_planes(winograd_shape(spec.convolution, true), library_.threads()) *
         sizeof(float);
}

template <class T>
std::size_t PooledConvolutions<T>::workspace(const PooledConvolutionSpec& spec,
                                             std::size_t rows) const {
  return planes(spec, rows) + rows * spec.pool().outputs();
}

template <class T>
WinogradMemory PooledConvolutions<T>::parts(const PooledConvolutionSpec& spec,
                                            const PooledConvolutionMemory& memory) const {
  return {reinterpret_cast<float*>(memory.workspace),
          reinterpret_cast<std::uint8_t*>(memory.workspace) + planes(spec, memory.rows) +
              memory.first * spec.pool().outputs()};
}

// Returns the rows of a piece, for shapes that the own kernel does not fit.
template <class T>
std::size_t PooledConvolutions<T>::piece(const PooledConvolutionSpec& spec,
                                         std::size_t rows) const {
  return std::min(rows, rows_of_piece(spec.convolution, library_.threads()));
}

template <class T>
KernelMemory PooledConvolutions<T>::memory(const PooledConvolutionSpec& spec,
                                           std::size_t rows) const {
  const ConvolutionSpec& s = spec.convolution;
  if (winograd(spec, rows)) {
    return {.scratch = winograd_scratch(winograd_shape(s, true), library_.threads(), false)};
  }
  KernelMemory memory = convolutions_.memory(s, piece(spec, rows));
  memory.between += piece(spec, rows) * s.outputs() * sizeof(T);
  return memory;
}

template <class T>
T* PooledConvolutions<T>::between(std::size_t count) {
  if (count * sizeof(T) > between_.bytes()) between_ = Buffer(count * sizeof(T));
  return reinterpret_cast<T*>(between_.data());
}

template <class T>
void PooledConvolutions<T>::forward(const PooledConvolutionSpec& spec, std::size_t rows, const T* x,
                                    const T* w, const T* b, T* y,
                                    const PooledConvolutionMemory& memory) {
  const WinogradMemory mine = parts(spec, memory);
  const ConvolutionSpec& s = spec.convolution;
  if (winograd(spec, memory.rows)) {
    return winograd_forward(library_, winograd_shape(s, true), rows, x, w, b, y, mine,
                            memory.slice);
  }
  const std::size_t pooled = spec.pool().outputs();
  const std::size_t planned = piece(spec, memory.rows), most = std::min(rows, planned);
  T* const values = between(most * s.outputs());
  for (std::size_t row = 0; row < rows; row += most) {
    const std::size_t count = std::min(most, rows - row);
    T* const to = y + row * pooled;
    std::uint8_t* const places = mine.places + row * pooled;
    convolutions_.forward(s, {count, planned}, x + row * s.inputs(), w, b, values);
    pool_forward(spec.pool(), count, values, to, reinterpret_cast<std::byte*>(places));
    if (s.activation != Activation::kRelu) continue;
    for (std::size_t i = 0; i < count * pooled; ++i) places[i] = to[i] <= 0 ? kCut : places[i];
  }
}

// The places encode what ReLU cut, so the convolution runs without an activation.
template <class T>
void PooledConvolutions<T>::backward(const PooledConvolutionSpec& spec, std::size_t rows,
                                     const T* x, const T* dy, const T* w, T* dx, T* dw, T* db,
                                     const PooledConvolutionMemory& memory, bool accumulate) {
  const WinogradMemory mine = parts(spec, memory);
  ConvolutionSpec s = spec.convolution;
  if (winograd(spec, memory.rows)) {
    return winograd_backward<T>(library_, winograd_shape(s, true), rows, x, nullptr, dy, w, dx, dw,
                                s.bias ? db : nullptr, mine, accumulate, memory.slice);
  }
  s.activation = Activation::kNone;
  const std::size_t pooled = spec.pool().outputs();
  const std::size_t planned = piece(spec, memory.rows), most = std::min(rows, planned);
  bool more = accumulate || !memory.slice.first;
  if (rows == 0)
    return convolutions_.backward(s, {0, planned}, x, nullptr, nullptr, w, dx, dw, db, more);
  T* const gradients = between(most * s.outputs());
  for (std::size_t row = 0; row < rows; row += most) {
    const std::size_t count = std::min(most, rows - row);
    pool_backward(library_, spec.pool(), count, dy + row * pooled, gradients,
                  reinterpret_cast<const std::byte*>(mine.places + row * pooled));
    convolutions_.backward(s, {count, planned}, x + row * s.inputs(), nullptr, gradients, w,
                           dx == nullptr ? nullptr : dx + row * s.inputs(), dw, db, more);
    more = true;
  }
}

template class PooledConvolutions<float>;
template class PooledConvolutions<BFloat16>;

}  // namespace lockstep::engine::cpu
