// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_libraries.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "test/engine/cuda/emulator.h"

namespace lockstep::engine::cuda {
namespace {

struct FakeProduct {
  static constexpr const char* kName = "fake_product";
  Product product;
  const void* a;
  const void* b;
  const void* bias;
  void* c;
};

struct FakeConvolution {
  static constexpr const char* kName = "fake_convolution";
  Convolution call;
  const void* first;
  const void* second;
  const void* bias;
  void* target;
};

constexpr Grid kOneWarp{.blocks = 1, .rows = 1, .threads = 32};

template <class T>
std::vector<float> widened(const void* data, std::size_t count) {
  const T* const from = static_cast<const T*>(data);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = float(from[i]);
  return values;
}

template <class T>
void store(const std::vector<float>& values, void* data) {
  T* const to = static_cast<T*>(data);
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = T(values[i]);
}

// Applies ReLU; NaN stays NaN.
float rectified(float value) {
  return value < 0 ? 0 : value;
}

// Adds the values in memory and a bias to each column, then applies ReLU.
template <class T>
void finish(std::vector<float>& sums, bool accumulate, const void* bias, std::size_t columns,
            bool relu, void* target) {
  const std::vector<float> before = widened<T>(target, accumulate ? sums.size() : 0);
  const std::vector<float> added = widened<T>(bias, bias == nullptr ? 0 : columns);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (accumulate) sums[i] += before[i];
    if (!added.empty()) sums[i] += added[i % columns];
    if (relu) sums[i] = rectified(sums[i]);
  }
  store<T>(sums, target);
}

// Returns a row-major [rows, columns] matrix as [columns, rows].
std::vector<float> transposed(const std::vector<float>& matrix, std::size_t rows,
                              std::size_t columns) {
  std::vector<float> result(matrix.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) result[j * rows + i] = matrix[i * columns + j];
  }
  return result;
}

template <class T>
void run_product(const void* arguments) {
  if (emulated_place().thread != 0) return;
  const FakeProduct& call = *static_cast<const FakeProduct*>(arguments);
  const auto& [dtype, m, n, k, transpose_a, transpose_b, accumulate, bias, relu] = call.product;
  std::vector<float> a = widened<T>(call.a, m * k), b = widened<T>(call.b, k * n);
  if (transpose_a) a = transposed(a, k, m);
  if (transpose_b) b = transposed(b, n, k);
  std::vector<float> sums(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t l = 0; l < k; ++l) {
      for (std::size_t j = 0; j < n; ++j) sums[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  finish<T>(sums, accumulate, bias ? call.bias : nullptr, n, relu, call.c);
}

// Calls visit(output, input, weight) for each output position and kernel position that meet an
// input. The arguments are the indices of their first channels in y, x, and w (first filter).
template <class Visit>
void each_place(const ConvolutionSpec& s, std::size_t rows, Visit visit) {
  for (std::size_t y = 0; y < rows * s.output_height() * s.output_width(); ++y) {
    const std::size_t row = y / (s.output_height() * s.output_width());
    const std::size_t top = y / s.output_width() % s.output_height() * s.stride,
                      left = y % s.output_width() * s.stride;
    for (std::size_t place = 0; place < s.kernel_height * s.kernel_width; ++place) {
      // The index wraps around above or left of the image.
      const std::size_t line = top + place / s.kernel_width - s.padding,
                        column = left + place % s.kernel_width - s.padding;
      if (line >= s.height || column >= s.width) continue;
      visit(y * s.filters, ((row * s.height + line) * s.width + column) * s.channels,
            place * s.channels);
    }
  }
}

template <class T>
void run_convolution(const void* arguments) {
  if (emulated_place().thread != 0) return;
  const FakeConvolution& call = *static_cast<const FakeConvolution*>(arguments);
  const auto& [pass, spec, rows, dtype, accumulate] = call.call;
  const std::size_t x_size = rows * spec.inputs(), y_size = rows * spec.outputs(),
                    w_size = spec.weights(), filter = w_size / spec.filters;
  const bool forward = pass == Convolution::Pass::kForward;
  const bool of_data = pass == Convolution::Pass::kGradientOfData;
  const std::vector<float> first = widened<T>(call.first, of_data ? y_size : x_size);
  const std::vector<float> second = widened<T>(call.second, forward || of_data ? w_size : y_size);
  std::vector<float> sums(forward ? y_size : of_data ? x_size : w_size);
  each_place(spec, rows, [&](std::size_t y, std::size_t x, std::size_t w) {
    for (std::size_t f = 0; f < spec.filters; ++f, ++y, w += filter) {
      for (std::size_t c = 0; c < spec.channels; ++c) {
        if (forward) {
          sums[y] += first[x + c] * second[w + c];
        } else if (of_data) {
          sums[x + c] += first[y] * second[w + c];
        } else {
          sums[w + c] += first[x + c] * second[y];
        }
      }
    }
  });
  finish<T>(sums, accumulate, forward && spec.bias ? call.bias : nullptr, spec.filters,
            forward && spec.activation == Activation::kRelu, call.target);
}

template <class T>
std::vector<EmulatedKernel> kernels_of() {
  return {{FakeProduct::kName, sizeof(FakeProduct), run_product<T>},
          {FakeConvolution::kName, sizeof(FakeConvolution), run_convolution<T>}};
}

std::vector<EmulatedKernel> with_own(DType dtype) {
  const std::span<const EmulatedKernel> own = emulated_kernels(dtype),
                                        others = library_kernels(dtype);
  std::vector<EmulatedKernel> all(own.begin(), own.end());
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

}  // namespace

std::span<const EmulatedKernel> library_kernels(DType dtype) {
  static const std::vector<EmulatedKernel> float32 = kernels_of<float>(),
                                           bfloat16 = kernels_of<BFloat16>(),
                                           float16 = kernels_of<Half>();
  if (dtype == DType::kFloat32) return float32;
  return dtype == DType::kBFloat16 ? bfloat16 : float16;
}

std::span<const EmulatedKernel> kernels_with_libraries(DType dtype) {
  static const std::vector<EmulatedKernel> float32 = with_own(DType::kFloat32),
                                           bfloat16 = with_own(DType::kBFloat16),
                                           float16 = with_own(DType::kFloat16);
  if (dtype == DType::kFloat32) return float32;
  return dtype == DType::kBFloat16 ? bfloat16 : float16;
}

void FakeProducts::run(CudaStream& stream, const Product& product, const void* a, const void* b,
                       const void* bias, void* c) {
  invariant(product.m > 0 && product.n > 0 && product.k > 0, "a product of something");
  invariant(!product.bias || bias != nullptr, "a product with a bias gets one");
  kernels_->launch(stream, kOneWarp, FakeProduct{product, a, b, bias, c});
}

void FakeConvolutions::run(CudaStream& stream, const Convolution& call, const void* first,
                           const void* second, const void* bias, void* target) {
  const bool biased = call.pass == Convolution::Pass::kForward && call.spec.bias;
  invariant(!biased || bias != nullptr, "a convolution with a bias gets one");
  kernels_->launch(stream, kOneWarp, FakeConvolution{call, first, second, bias, target});
}

}  // namespace lockstep::engine::cuda
