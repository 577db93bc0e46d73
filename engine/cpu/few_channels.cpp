// SPDX-License-Identifier: MIT
#include "engine/cpu/few_channels.h"

#include <algorithm>

#include "engine/cpu/few_channels_kernels.h"
#include "engine/cpu/loops.h"
#include "engine/cpu/share_rows.h"

namespace lockstep::engine::cpu {
namespace {

FewChannelsShape shape_of(const ConvolutionSpec& s) {
  return {s.height,  s.width,         s.channels,
          s.filters, s.kernel_height, s.kernel_width,
          s.stride,  s.padding,       s.activation == Activation::kRelu};
}

std::size_t rounded(std::size_t floats) {
  return (floats + 15) / 16 * 16;
}

}  // namespace

bool few_channels_fits(const ConvolutionSpec& s) {
  return s.channels < 16 && s.kernel_height * s.kernel_width * s.channels <= 64 &&
         s.filters % 16 == 0;
}

float* FewChannels::memory(std::size_t floats) {
  if (floats * sizeof(float) > memory_.bytes()) memory_ = Buffer(floats * sizeof(float));
  return reinterpret_cast<float*>(memory_.data());
}

void FewChannels::forward(const ConvolutionSpec& s, std::size_t rows, const float* x,
                          const float* w, const float* b, float* y) {
  const FewChannelsShape shape = shape_of(s);
  const std::size_t depth = shape.depth(), weights = rounded(depth * s.filters);
  const std::size_t scratch = rounded(shape.scratch());
  float* const turned = memory(weights + std::size_t(library_.threads()) * scratch);
  for (std::size_t f = 0; f < s.filters; ++f) {
    for (std::size_t k = 0; k < depth; ++k) turned[k * s.filters + f] = w[f * depth + k];
  }
  share_rows(library_.threads(), rows, [&](int thread, std::size_t first, std::size_t count) {
    few_channels_forward(shape, count, x + first * shape.inputs(), turned, b,
                         y + first * shape.outputs(),
                         turned + weights + std::size_t(thread) * scratch);
  });
}

void FewChannels::gradient(const ConvolutionSpec& s, std::size_t rows, const float* x,
                           const float* y, const float* dy, float* dw, float* db, bool accumulate) {
  const FewChannelsShape shape = shape_of(s);
  const std::size_t threads = std::size_t(library_.threads()), depth = shape.depth();
  const std::size_t sums = shape.groups() * FewChannelsShape::kGroup * s.filters;
  const std::size_t scratch = rounded(shape.scratch()), stride = rounded(sums + s.filters);
  float* const all = memory(threads * (stride + scratch));
  std::fill_n(all, threads * stride, 0.0f);
  share_rows(library_.threads(), rows, [&](int thread, std::size_t first, std::size_t count) {
    float* const mine = all + std::size_t(thread) * stride;
    few_channels_gradient(shape, count, x + first * shape.inputs(),
                          shape.relu ? y + first * shape.outputs() : nullptr,
                          dy + first * shape.outputs(), mine, mine + sums,
                          all + threads * stride + std::size_t(thread) * scratch);
  });
  for (std::size_t thread = 1; thread < threads; ++thread) {
    add(all, all + thread * stride, all, sums + s.filters);
  }
  for (std::size_t f = 0; dw != nullptr && f < s.filters; ++f) {
    for (std::size_t k = 0; k < depth; ++k) {
      float& to = dw[f * depth + k];
      to = accumulate ? to + all[k * s.filters + f] : all[k * s.filters + f];
    }
  }
  if (db == nullptr) return;
  if (accumulate) {
    add(db, all + sums, db, s.filters);
  } else {
    std::copy_n(all + sums, s.filters, db);
  }
}

}  // namespace lockstep::engine::cpu
