// SPDX-License-Identifier: MIT
#include "engine/cpu/few_channels.h"

#include <algorithm>
#include <type_traits>

#include "engine/cpu/few_channels_kernels.h"
#include "engine/cpu/loops.h"
#include "engine/cpu/share_rows.h"

namespace lockstep::engine::cpu {
namespace {

template <class T>
FewChannelsShape few_channels_shape(const ConvolutionSpec& s) {
  return {s.height,
          s.width,
          s.channels,
          s.filters,
          s.kernel_height,
          s.kernel_width,
          s.stride,
          s.padding,
          s.activation == Activation::kRelu,
          !std::is_same_v<T, float>};
}

// Returns the number of sums of products; those of the bias follow them.
std::size_t sums(const FewChannelsShape& shape) {
  return shape.groups() * FewChannelsShape::kGroup * shape.filters;
}
std::size_t sums_of_thread(const FewChannelsShape& shape) {
  return whole_lines(sums(shape) + shape.filters);
}

template <class T>
float* floats(Library& library, const ConvolutionSpec& s) {
  return reinterpret_cast<float*>(library.scratch(few_channels_scratch<T>(s, library.threads())));
}

}  // namespace

bool few_channels_fits(const ConvolutionSpec& s) {
  return s.channels < 16 && s.kernel_height * s.kernel_width * s.channels <= 64 &&
         s.filters % 16 == 0;
}

template <class T>
std::size_t few_channels_scratch(const ConvolutionSpec& s, int threads) {
  const FewChannelsShape shape = few_channels_shape<T>(s);
  const std::size_t weights = whole_lines(shape.depth() * s.filters);
  return (std::max(weights, std::size_t(threads) * sums_of_thread(shape)) +
          std::size_t(threads) * whole_lines(shape.scratch())) *
         sizeof(float);
}

template <class T>
void few_channels_forward(Library& library, const ConvolutionSpec& s, std::size_t rows, const T* x,
                          const T* w, const T* b, T* y) {
  const FewChannelsShape shape = few_channels_shape<T>(s);
  const std::size_t depth = shape.depth(), weights = whole_lines(depth * s.filters);
  const std::size_t scratch = whole_lines(shape.scratch());
  float* const turned = floats<T>(library, s);
  for (std::size_t f = 0; f < s.filters; ++f) {
    for (std::size_t k = 0; k < depth; ++k) turned[k * s.filters + f] = w[f * depth + k];
  }
  share_rows(library.threads(), rows, [&](int thread, std::size_t first, std::size_t count) {
    few_channels_forward(shape, count, x + first * shape.inputs(), turned, b,
                         y + first * shape.outputs(),
                         turned + weights + std::size_t(thread) * scratch);
  });
}

template <class T>
void few_channels_gradient(Library& library, const ConvolutionSpec& s, std::size_t rows, const T* x,
                           const T* y, const T* dy, T* dw, T* db, bool accumulate) {
  const FewChannelsShape shape = few_channels_shape<T>(s);
  const std::size_t threads = std::size_t(library.threads()), depth = shape.depth();
  const std::size_t products = sums(shape);
  const std::size_t scratch = whole_lines(shape.scratch()), stride = sums_of_thread(shape);
  float* const all = floats<T>(library, s);
  std::fill_n(all, threads * stride, 0.0f);
  share_rows(library.threads(), rows, [&](int thread, std::size_t first, std::size_t count) {
    float* const mine = all + std::size_t(thread) * stride;
    few_channels_gradient(shape, count, x + first * shape.inputs(),
                          shape.relu ? y + first * shape.outputs() : nullptr,
                          dy + first * shape.outputs(), mine, mine + products,
                          all + threads * stride + std::size_t(thread) * scratch);
  });
  for (std::size_t thread = 1; thread < threads; ++thread) {
    add(all, all + thread * stride, all, products + s.filters);
  }
  for (std::size_t f = 0; dw != nullptr && f < s.filters; ++f) {
    for (std::size_t k = 0; k < depth; ++k) {
      T& to = dw[f * depth + k];
      to = T(accumulate ? to + all[k * s.filters + f] : all[k * s.filters + f]);
    }
  }
  const float* const bias = all + products;
  for (std::size_t f = 0; db != nullptr && f < s.filters; ++f) {
    db[f] = T(accumulate ? db[f] + bias[f] : bias[f]);
  }
}

template std::size_t few_channels_scratch<float>(const ConvolutionSpec&, int);
template std::size_t few_channels_scratch<BFloat16>(const ConvolutionSpec&, int);
template void few_channels_forward(Library&, const ConvolutionSpec&, std::size_t, const float*,
                                   const float*, const float*, float*);
template void few_channels_forward(Library&, const ConvolutionSpec&, std::size_t, const BFloat16*,
                                   const BFloat16*, const BFloat16*, BFloat16*);
template void few_channels_gradient(Library&, const ConvolutionSpec&, std::size_t, const float*,
                                    const float*, const float*, float*, float*, bool);
template void few_channels_gradient(Library&, const ConvolutionSpec&, std::size_t, const BFloat16*,
                                    const BFloat16*, const BFloat16*, BFloat16*, BFloat16*, bool);

}  // namespace lockstep::engine::cpu
