// SPDX-License-Identifier: MIT
// The statistics of batch normalization: sums over a batch, moments and averages.
// batch_norm_lines.cuh has the elementwise part.
#pragma once
#include <cstddef>
#include <exact.cuh>
#include <grid.cuh>

#include "engine/cuda/kernels/batch_norm.h"
#include "engine/cuda/kernels/batch_norm_lines.cuh"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

__device__ inline double deviation_of(double variance, double epsilon) {
  return divided(1.0, root(plus(variance, epsilon)));
}

// The moving averages of a channel.
struct Averages {
  double mean = 0, variance = 0;
};
__device__ inline Averages averages_at(const BatchNormFindMoments& a, std::size_t c) {
  if (a.averages == nullptr) return {};
  return {a.averages[c], a.averages[a.channels + c]};
}

// Computes the moments of one channel from sums over n values. If a value is NaN, so are the mean
// and every output, whatever the variance.
__device__ inline void find_moments(const BatchNormFindMoments& a, std::size_t c, double n,
                                    double sum, double squares, const Averages& before) {
  const double values = n > 1 ? n : 1;
  const double unbiased = n > 1 ? divided(n, n - 1) : 1, rest = 1 - a.keep;
  const double mean = divided(sum, values);
  const double difference = minus(divided(squares, values), times(mean, mean));
  const double variance = difference > 0 ? difference : 0;
  if (c == 0) *a.count = values;
  a.moments[c] = mean;
  a.moments[a.channels + c] = deviation_of(variance, a.epsilon);
  if (a.averages == nullptr || n == 0) return;
  a.averages[c] = plus(times(a.keep, before.mean), times(rest, mean));
  a.averages[a.channels + c] =
      plus(times(a.keep, before.variance), times(times(rest, unbiased), variance));
}

template <class T>
__device__ void run(const BatchNormFindMoments& a) {
  const double n = a.sums[2 * a.channels];
  const std::size_t first = std::size_t(block()) * threads() + thread();
  for (std::size_t c = first; c < a.channels; c += std::size_t(blocks()) * threads())
    find_moments(a, c, n, a.sums[c], a.sums[a.channels + c], averages_at(a, c));
}

// Adds lines of x and of their squares.
template <class T, class Way>
struct ValueAdder {
  static constexpr unsigned kWidth = Way::kWidth;
  const T* x;  // the group's channels of the first line
  std::size_t channels;
  __device__ Pack<T, kWidth> read(std::size_t line) const {
    return load<kWidth>(x + line * channels, Way::kAligned);
  }
  template <std::size_t kLines>
  __device__ void add(std::size_t, std::size_t, const Pack<T, kWidth> (&packs)[kLines],
                      ChannelSums<2, kWidth>& sums) const {
    for (unsigned w = 0; w < kWidth; ++w) {
      FewSums<T> sum = 0, squares = 0;
      for (const Pack<T, kWidth>& pack : packs) {
        const auto value = FewSums<T>(wide(pack.values[w]));
        sum += value;
        squares += value * value;
      }
      sums.values[0][w] += double(sum);
      sums.values[1][w] += double(squares);
    }
  }
};

// Averages lie in host memory, so they are fetched before chunks are added.
struct ValuesEnd {
  const BatchNormSums& a;
  double n;
  __device__ Averages fetch(std::size_t c) const {
    return a.find.moments == nullptr ? Averages{} : averages_at(a.find, c);
  }
  __device__ void put(std::size_t c, const double (&totals)[2], const Averages& before) const {
    a.sums[c] = totals[0];
    a.sums[a.channels + c] = totals[1];
    if (c == 0) a.sums[2 * a.channels] = n;
    if (a.find.moments != nullptr) find_moments(a.find, c, n, totals[0], totals[1], before);
  }
};

// Sums with narrow tiles, or with wide ones if the caller asks for them.
template <class Way, unsigned kAtOnce, unsigned kSums = 2, class Make, class End>
__device__ void sum_batch(std::size_t lines, std::size_t channels, const Partials& partials,
                          Make make, const End& end) {
  if constexpr (Way::kWidth == kPack) {
    if (partials.tile == kWideSumGroups)
      return sum_lines<Way::kWidth, kSums, kAtOnce, double, kWideSumGroups>(lines, channels,
                                                                            partials, make, end);
  }
  sum_lines<Way::kWidth, kSums, kAtOnce>(lines, channels, partials, make, end);
}

template <class T>
__device__ void run(const BatchNormSums& a) {
  const T* const x = static_cast<const T*>(a.x);
  const std::size_t lines = std::size_t(a.state->examples) * a.positions;
  go(a.channels, packs_at(x), [&](auto way) {
    using Way = decltype(way);
    sum_batch<Way, 4>(
        lines, a.channels, a.partials,
        [&](std::size_t channel) {
          return ValueAdder<T, Way>{x + channel, a.channels};
        },
        ValuesEnd{a, double(lines)});
  });
}

template <class T>
__device__ void run(const BatchNormFixedMoments& a) {
  const std::size_t first = std::size_t(block()) * threads() + thread();
  for (std::size_t c = first; c < a.channels; c += std::size_t(blocks()) * threads()) {
    a.moments[c] = a.averages[c];
    a.moments[a.channels + c] = deviation_of(a.averages[a.channels + c], a.epsilon);
  }
}

// Adds lines of g and of g x.
template <class T, class Way>
struct GradientAdder {
  static constexpr unsigned kWidth = Way::kWidth;
  Gradients<T> from;
  std::size_t channel;
  __device__ auto read(std::size_t line) const { return from.template read<Way>(line, channel); }
  template <std::size_t kLines>
  __device__ void add(std::size_t, std::size_t, const GradientLine<T, kWidth> (&lines)[kLines],
                      ChannelSums<2, kWidth>& sums) const {
    for (unsigned w = 0; w < kWidth; ++w) {
      FewSums<T> sum = 0, products = 0;
      for (const GradientLine<T, kWidth>& line : lines) {
        const auto g = FewSums<T>(line.passed(w));
        sum += g;
        products += g * FewSums<T>(wide(line.x.values[w]));
      }
      sums.values[0][w] += double(sum);
      sums.values[1][w] += double(products);
    }
  }
};

// Computes the sum of g (x - mean) as the sum of g x minus the mean's part.
template <class T>
struct GradientsEnd {
  const BatchNormGradientSums& a;
  struct Moments {
    double mean, deviation;
  };
  __device__ Moments fetch(std::size_t c) const {
    return {a.moments[c], a.moments[a.channels + c]};
  }
  __device__ void put(std::size_t c, const double (&totals)[2], const Moments& moments) const {
    const double of_shift = totals[0],
                 of_scale = (totals[1] - moments.mean * totals[0]) * moments.deviation;
    a.sums[c] = of_shift;
    a.sums[a.channels + c] = of_scale;
    put_gradient(static_cast<T*>(a.dshift), c, of_shift, a.accumulate);
    put_gradient(static_cast<T*>(a.dscale), c, of_scale, a.accumulate);
  }
};

template <class T>
__device__ void run(const BatchNormGradientSums& a) {
  const Gradients<T> from{static_cast<const T*>(a.x), static_cast<const T*>(a.dy), a.mask,
                          a.positions, a.channels};
  go(a.channels, packs_at(a.x, a.dy), [&](auto way) {
    using Way = decltype(way);
    sum_batch<Way, 2>(
        std::size_t(a.state->examples) * a.positions, a.channels, a.partials,
        [&](std::size_t channel) {
          return GradientAdder<T, Way>{from, channel};
        },
        GradientsEnd<T>{a});
  });
}

}  // namespace lockstep::engine::cuda
