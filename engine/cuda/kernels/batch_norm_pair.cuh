// SPDX-License-Identifier: MIT
// Backward pass of two batch norms whose outputs are added. It reads dy and the mask once for both.
#pragma once
#include <cstddef>
#include <grid.cuh>

#include "engine/cuda/kernels/batch_norm.cuh"
#include "engine/cuda/kernels/batch_norm.h"
#include "engine/cuda/kernels/batch_norm_lines.cuh"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

template <class T, unsigned kWidth>
struct PairLine {
  GradientLine<T, kWidth> first;
  Pack<T, kWidth> x;  // input of the second batch norm
};

template <class T>
struct PairGradients {
  Gradients<T> first;
  const T* x;

  template <class Arguments>
  __device__ static PairGradients of(const Arguments& a) {
    return {
        {static_cast<const T*>(a.x), static_cast<const T*>(a.dy), a.mask, a.positions, a.channels},
        static_cast<const T*>(a.second.x)};
  }
  template <class Way>
  __device__ auto read(std::size_t line, std::size_t channel) const {
    constexpr unsigned kWidth = Way::kWidth;
    return PairLine<T, kWidth>{first.template read<Way>(line, channel),
                               load<kWidth>(x + line * first.channels + channel, Way::kAligned)};
  }
};

// Adds lines of g, of g x, and of g times the second x.
template <class T, class Way>
struct PairAdder {
  static constexpr unsigned kWidth = Way::kWidth;
  PairGradients<T> from;
  std::size_t channel;
  __device__ auto read(std::size_t line) const { return from.template read<Way>(line, channel); }
  template <std::size_t kLines>
  __device__ void add(std::size_t, std::size_t, const PairLine<T, kWidth> (&lines)[kLines],
                      ChannelSums<3, kWidth>& sums) const {
    for (unsigned w = 0; w < kWidth; ++w) {
      FewSums<T> sum = 0, products[2] = {};
      for (const PairLine<T, kWidth>& line : lines) {
        const auto g = FewSums<T>(line.first.passed(w));
        sum += g;
        products[0] += g * FewSums<T>(wide(line.first.x.values[w]));
        products[1] += g * FewSums<T>(wide(line.x.values[w]));
      }
      sums.values[0][w] += double(sum);
      sums.values[1][w] += double(products[0]);
      sums.values[2][w] += double(products[1]);
    }
  }
};

template <class T>
struct PairEnd {
  using End = GradientsEnd<T>;
  const BatchNormPairGradientSums& a;
  struct Moments {
    typename End::Moments first, second;
  };
  __device__ Moments fetch(std::size_t c) const {
    return {End{a}.fetch(c), End{a.second}.fetch(c)};
  }
  __device__ void put(std::size_t c, const double (&totals)[3], const Moments& moments) const {
    const double first[2] = {totals[0], totals[1]}, second[2] = {totals[0], totals[2]};
    End{a}.put(c, first, moments.first);
    End{a.second}.put(c, second, moments.second);
  }
};

template <class T>
__device__ void run(const BatchNormPairGradientSums& a) {
  const auto from = PairGradients<T>::of(a);
  go(a.channels, packs_at(a.x, a.dy, a.second.x), [&](auto way) {
    using Way = decltype(way);
    sum_batch<Way, 2, 3>(
        std::size_t(a.state->examples) * a.positions, a.channels, a.partials,
        [&](std::size_t channel) {
          return PairAdder<T, Way>{from, channel};
        },
        PairEnd<T>{a});
  });
}

template <class T, class Way>
__device__ void backpropagate_pair(const BatchNormPairBackpropagate& a) {
  constexpr unsigned kWidth = Way::kWidth;
  const Threads<kWidth> mine(a.channels);
  T* const dx[2] = {static_cast<T*>(a.dx), static_cast<T*>(a.second.dx)};
  const auto from = PairGradients<T>::of(a);
  const std::size_t lines = std::size_t(a.state->examples) * a.positions;
  for (std::size_t tile = block(); tile < mine.tiles(); tile += blocks()) {
    if (!mine.works(tile)) continue;
    const std::size_t channel = mine.channel(tile);
    Backpropagation back[2][kWidth];
    for (unsigned w = 0; w < kWidth; ++w) {
      back[0][w] = Backpropagation::of<T>(a, channel + w);
      back[1][w] = Backpropagation::of<T>(a.second, channel + w);
    }
    each_line<2>(
        std::size_t(block_row()) * mine.slots + mine.slot, std::size_t(block_rows()) * mine.slots,
        lines, [&](std::size_t line) { return from.template read<Way>(line, channel); },
        [&](std::size_t line, const PairLine<T, kWidth>& values) {
          const std::size_t at = line * a.channels + channel;
          Pack<float, kWidth> of_x[2];
          for (unsigned w = 0; w < kWidth; ++w) {
            const float g = values.first.passed(w);
            of_x[0].values[w] = back[0][w](g, wide(values.first.x.values[w]));
            of_x[1].values[w] = back[1][w](g, wide(values.x.values[w]));
          }
          for (unsigned k = 0; k < 2; ++k)
            if (dx[k] != nullptr) store(narrowed<T>(of_x[k]), dx[k] + at, Way::kAligned);
        });
  }
}

template <class T>
__device__ void run(const BatchNormPairBackpropagate& a) {
  go(a.channels, packs_at(a.x, a.dy, a.dx, a.second.x, a.second.dx),
     [&](auto way) { backpropagate_pair<T, decltype(way)>(a); });
}

}  // namespace lockstep::engine::cuda
