// SPDX-License-Identifier: MIT
// The statistics of batch normalisation: sums over a batch and what follows from them. The other
// half is batch_norm_lines.cuh.
#pragma once
#include <cstddef>
#include <exact.cuh>
#include <grid.cuh>

#include "engine/cuda/kernels/batch_norm.h"
#include "engine/cuda/kernels/batch_norm_lines.cuh"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

// Adds lines of x and of their squares.
template <class T, unsigned kWidth>
struct ValueAdder {
  const T* x;  // the group's channels of the first line
  std::size_t channels;
  bool aligned;
  __device__ Pack<T, kWidth> read(std::size_t line) const {
    return load<kWidth>(x + line * channels, aligned);
  }
  __device__ void add(std::size_t, const Pack<T, kWidth>& pack,
                      ChannelSums<2, kWidth>& sums) const {
    for (unsigned w = 0; w < kWidth; ++w) {
      const double value = double(wide(pack.values[w]));
      sums.values[0][w] += value;
      sums.values[1][w] += value * value;
    }
  }
};

template <class T, unsigned kWidth>
__device__ void add_values(const BatchNormSums& a) {
  const T* const x = static_cast<const T*>(a.x);
  sum_lines<kWidth, 2>(std::size_t(a.state->examples) * a.positions, a.channels, a.chunks,
                       a.partial, [&](std::size_t channel) {
                         return ValueAdder<T, kWidth>{x + channel, a.channels, packs_at(x)};
                       });
}

template <class T>
__device__ void run(const BatchNormSums& a) {
  a.channels % kPack == 0 ? add_values<T, kPack>(a) : add_values<T, 1>(a);
}

template <class T>
__device__ void run(const BatchNormSumsFinish& a) {
  const std::size_t count = 2 * a.channels;
  add_chunks(a.partial, a.chunks, count, [&](std::size_t i, double total) { a.sums[i] = total; });
  if (block() == 0 && thread() == 0)
    a.sums[count] = double(std::size_t(a.state->examples) * a.positions);
}

__device__ inline double deviation_of(double variance, double epsilon) {
  return divided(1.0, root(plus(variance, epsilon)));
}

// Where a value is no number the mean is none, and with it every output, whatever the variance.
template <class T>
__device__ void run(const BatchNormFindMoments& a) {
  const double n = a.sums[2 * a.channels], values = n > 1 ? n : 1;
  const double unbiased = n > 1 ? divided(n, n - 1) : 1, rest = 1 - a.keep;
  const std::size_t first = std::size_t(block()) * threads() + thread();
  if (first == 0) *a.count = values;
  for (std::size_t c = first; c < a.channels; c += std::size_t(blocks()) * threads()) {
    const double mean = divided(a.sums[c], values);
    const double difference = minus(divided(a.sums[a.channels + c], values), times(mean, mean));
    const double variance = difference > 0 ? difference : 0;
    a.moments[c] = mean;
    a.moments[a.channels + c] = deviation_of(variance, a.epsilon);
    if (a.averages == nullptr || n == 0) continue;
    double &mean_before = a.averages[c], &variance_before = a.averages[a.channels + c];
    mean_before = plus(times(a.keep, mean_before), times(rest, mean));
    variance_before = plus(times(a.keep, variance_before), times(times(rest, unbiased), variance));
  }
}

template <class T>
__device__ void run(const BatchNormFixedMoments& a) {
  const std::size_t first = std::size_t(block()) * threads() + thread();
  for (std::size_t c = first; c < a.channels; c += std::size_t(blocks()) * threads()) {
    a.moments[c] = a.averages[c];
    a.moments[a.channels + c] = deviation_of(a.averages[a.channels + c], a.epsilon);
  }
}

// Lines of x and dy, of which the mask let some pass.
template <class T, unsigned kWidth>
struct GradientAdder {
  Gradients<T> from;
  std::size_t channel;
  Pack<float, kWidth> means;
  __device__ auto read(std::size_t line) const { return from.template read<kWidth>(line, channel); }
  __device__ void add(std::size_t, const GradientLine<T, kWidth>& line,
                      ChannelSums<2, kWidth>& sums) const {
    for (unsigned w = 0; w < kWidth; ++w) {
      const double g = double(line.passed(w));
      sums.values[0][w] += g;
      sums.values[1][w] += g * double(wide(line.x.values[w]) - means.values[w]);
    }
  }
};

template <class T, unsigned kWidth>
__device__ void add_gradients(const BatchNormGradientSums& a) {
  const Gradients<T> from{
      static_cast<const T*>(a.x), static_cast<const T*>(a.dy), a.mask, a.positions, a.channels,
      packs_at(a.x, a.dy)};
  sum_lines<kWidth, 2>(std::size_t(a.state->examples) * a.positions, a.channels, a.chunks,
                       a.partial, [&](std::size_t channel) {
                         GradientAdder<T, kWidth> adder{from, channel, {}};
                         for (unsigned w = 0; w < kWidth; ++w)
                           adder.means.values[w] = float(a.moments[channel + w]);
                         return adder;
                       });
}

template <class T>
__device__ void run(const BatchNormGradientSums& a) {
  a.channels % kPack == 0 ? add_gradients<T, kPack>(a) : add_gradients<T, 1>(a);
}

template <class T>
__device__ void run(const BatchNormGradientFinish& a) {
  T* const dscale = static_cast<T*>(a.dscale);
  T* const dshift = static_cast<T*>(a.dshift);
  add_chunks(a.partial, a.chunks, 2 * a.channels, [&](std::size_t i, double total) {
    const bool of_shift = i < a.channels;
    const std::size_t c = of_shift ? i : i - a.channels;
    const double sum = of_shift ? total : total * a.moments[i];
    a.sums[i] = sum;
    put_gradient(of_shift ? dshift : dscale, c, sum, a.accumulate);
  });
}

}  // namespace lockstep::engine::cuda
