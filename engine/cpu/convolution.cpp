// SPDX-License-Identifier: MIT
#include "engine/cpu/convolution.h"

#include <algorithm>
#include <type_traits>

#include "engine/cpu/bfloat16_loops.h"
#include "engine/cpu/convolution_backward.h"
#include "engine/cpu/convolution_plan.h"
#include "engine/cpu/few_channels.h"
#include "engine/cpu/loops.h"
#include "engine/cpu/lowered.h"
#include "engine/cpu/wide_convolution.h"

namespace lockstep::engine::cpu {

template <class T>
struct ConvolutionForward {
  ScratchLayout layout;
  ForwardCall call;
  ConvolutionForward(Library& library, const ConvolutionSpec& spec, std::size_t rows)
      : call(library, convolution_plan(spec, rows, data_type<T>()), layout) {}
};

// Returns 8 rows per thread, so that the activations stay in the L2 cache. If the weights are
// larger than such a piece, it returns the whole batch, because adding their gradients per piece
// would cost more than it saves.
std::size_t rows_of_piece(const ConvolutionSpec& s, int threads) {
  const std::size_t rows = 8 * std::size_t(threads);
  const std::size_t activations = s.inputs() + s.outputs();
  return s.weights() > rows * activations ? std::size_t(-1) : rows;
}

template <class T>
Convolutions<T>::Convolutions(Library& library, Kernels kernels)
    : library_(library), kernels_(kernels) {
  if (!std::is_same_v<T, float> && !has_avx512())
    wide_ = std::make_unique<WideConvolutions>(library);
}
template <class T>
Convolutions<T>::~Convolutions() = default;

template <class T>
bool Convolutions<T>::winograd(const ConvolutionSpec& s, std::size_t planned) const {
  return kernels_ != Kernels::kDirect && winograd_fits(s) &&
         (kernels_ == Kernels::kWinograd || winograd_pays(s, planned));
}

template <class T>
bool Convolutions<T>::winograd_forward_too(const ConvolutionSpec& s, std::size_t planned) const {
  return winograd(s, planned) && (std::is_same_v<T, float> || kernels_ == Kernels::kWinograd ||
                                  winograd_pays_forward_in_bfloat16(s, planned));
}

template <class T>
bool Convolutions<T>::few_channels(const ConvolutionSpec& s) const {
  return kernels_ != Kernels::kDirect && few_channels_fits(s);
}

template <class T>
bool Convolutions<T>::lowered(const ConvolutionSpec& s) const {
  return std::is_same_v<T, float> && kernels_ != Kernels::kDirect && lowered_fits(s) &&
         lowered_pays(s);
}

// For the library's kernels it counts the rotated weights and the weights in the library's layout,
// their gradient and its sum.
template <class T>
KernelMemory Convolutions<T>::memory(const ConvolutionSpec& s, std::size_t planned) const {
  const int threads = library_.threads();
  KernelMemory memory;
  if (winograd(s, planned)) {
    memory.scratch = winograd_scratch(winograd_shape(s, false), threads, true);
    if (winograd_forward_too(s, planned)) return memory;
  }
  if (lowered(s)) return {.scratch = lowered_scratch(s, threads)};
  memory.cover({.scratch = 4 * s.weights() * sizeof(float)});
  if (!std::is_same_v<T, float>) memory.between = (s.weights() + s.filters) * sizeof(float);
  if (few_channels(s)) memory.cover({.scratch = few_channels_scratch<T>(s, threads)});
  if (wide_) {
    const KernelMemory wide = wide_->memory(s, planned);
    memory.cover({.scratch = wide.scratch});
    memory.between += wide.between;
  }
  return memory;
}

template <class T>
void Convolutions<T>::forward(const ConvolutionSpec& s, Rows of, const T* x, const T* w, const T* b,
                              T* y) {
  const auto [rows, planned] = of;
  if (winograd_forward_too(s, planned)) {
    const WinogradShape shape = winograd_shape(s, false);
    return winograd_forward(library_, shape, rows, x, w, b, y, {}, {});
  }
  if (few_channels(s)) return few_channels_forward(library_, s, rows, x, w, b, y);
  if constexpr (std::is_same_v<T, float>) {
    if (lowered(s)) return lowered_forward(library_, s, rows, x, w, b, y);
  } else if (wide_) {
    return wide_->forward(s, rows, x, w, b, y);
  }
  const std::size_t inputs = s.inputs(), outputs = s.outputs();
  const std::size_t most = rows_of_piece(s, library_.threads());
  // All pieces have `piece` rows, except for a last one with the remaining rows.
  for (std::size_t row = 0; row < rows;) {
    const std::size_t piece = std::min(most, rows - row);
    ConvolutionForward<T>& entry = forward_.find(
        s, piece, [&] { return std::make_unique<ConvolutionForward<T>>(library_, s, piece); });
    entry.call.set_weights(library_, w, b, library_.scratch(entry.layout.bytes()));
    for (; row + piece <= rows; row += piece) {
      entry.call.run(library_, x + row * inputs, y + row * outputs);
    }
  }
}

template <class T>
void Convolutions<T>::backward(const ConvolutionSpec& s, Rows of, const T* x, const T* y, T* dy,
                               const T* w, T* dx, T* dw, T* db, bool accumulate) {
  const auto [rows, planned] = of;
  if (winograd(s, planned)) {
    const WinogradShape shape = winograd_shape(s, false);
    return winograd_backward(library_, shape, rows, x, y, dy, w, dx, dw, s.bias ? db : nullptr, {},
                             accumulate, {});
  }
  if (few_channels(s)) {
    few_channels_gradient(library_, s, rows, x, y, dy, dw, s.bias ? db : nullptr, accumulate);
    if (dx == nullptr) return;
    dw = nullptr;
    db = nullptr;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (lowered(s)) {
      return lowered_backward(library_, s, rows, x, y, dy, w, dx, dw, db, accumulate);
    }
  }
  library_backward(s, rows, x, y, dy, w, dx, dw, db, accumulate);
}

template <class T>
void Convolutions<T>::library_backward(const ConvolutionSpec& s, std::size_t rows, const T* x,
                                       const T* y, T* dy, const T* w, T* dx, T* dw, T* db,
                                       bool accumulate) {
  if constexpr (std::is_same_v<T, float>) {
    sum_gradients(s, rows, x, y, dy, w, dx, dw, db, accumulate);
  } else {
    const std::size_t weights = s.weights(), bytes = (weights + s.filters) * sizeof(float);
    if (bytes > sums_.bytes()) sums_ = Buffer(bytes);
    auto* const sums = reinterpret_cast<float*>(sums_.data());
    float* const of_weights = dw == nullptr ? nullptr : sums;
    float* const of_bias = db == nullptr ? nullptr : sums + weights;
    if (wide_) {
      wide_->backward(s, rows, x, y, dy, w, dx, of_weights, of_bias);
    } else {
      sum_gradients(s, rows, x, y, dy, w, dx, of_weights, of_bias, false);
    }
    if (dw != nullptr) narrow_sums(sums, dw, weights, accumulate);
    if (db != nullptr && s.bias) narrow_sums(sums + weights, db, s.filters, accumulate);
  }
}

template <class T>
void Convolutions<T>::sum_gradients(const ConvolutionSpec& s, std::size_t rows, const T* x,
                                    const T* y, T* dy, const T* w, T* dx, float* dw, float* db,
                                    bool accumulate) {
  const std::size_t inputs = s.inputs(), outputs = s.outputs();
  const std::size_t most = rows_of_piece(s, library_.threads());
  if (rows == 0 && !accumulate) {
    if (dw != nullptr) std::fill_n(dw, s.weights(), 0.0f);
    if (db != nullptr) std::fill_n(db, s.filters, 0.0f);
  }
  for (std::size_t row = 0; row < rows;) {
    const std::size_t piece = std::min(most, rows - row);
    ConvolutionBackward<T>& entry = backward_.find(
        s, piece, [&] { return std::make_unique<ConvolutionBackward<T>>(library_, s, piece); });
    entry.begin(library_, w, dx != nullptr, dw != nullptr || db != nullptr);
    const bool more = row > 0;
    for (; row + piece <= rows; row += piece) {
      T* gradients = dy + row * outputs;
      if (s.activation == Activation::kRelu) {
        mask(y + row * outputs, gradients, gradients, piece * outputs);
      }
      entry.run(library_, x + row * inputs, gradients, dx == nullptr ? nullptr : dx + row * inputs);
    }
    entry.end(library_, dw, s.bias ? db : nullptr, accumulate || more);
  }
}

template class Convolutions<float>;
template class Convolutions<BFloat16>;

}  // namespace lockstep::engine::cpu
