// SPDX-License-Identifier: MIT
// The elementwise part of batch normalization. Statistics become three or four float32 numbers per
// channel, which a thread keeps for all its lines.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>

#include "engine/cuda/kernels/batch_norm.h"
#include "engine/cuda/kernels/lines.cuh"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

// Holds the gradient before the activation for the group of one line, and its x.
template <class T, unsigned kWidth>
struct GradientLine {
  Pack<T, kWidth> x, dy;
  unsigned passes = 0;  // one bit per channel of the group
  __device__ float passed(unsigned w) const {
    return (passes >> w & 1) != 0 ? wide(dy.values[w]) : 0.0f;
  }
};

// Reads gradients. The mask is null if all gradients pass.
template <class T>
struct Gradients {
  const T *x, *dy;
  const std::uint8_t* mask;
  std::size_t positions, channels;

  // A whole group lies in one byte of the mask, since rows then have no padding bits.
  template <class Way>
  __device__ auto read(std::size_t line, std::size_t channel) const {
    constexpr unsigned kWidth = Way::kWidth;
    const std::size_t at = line * channels + channel;
    GradientLine<T, kWidth> result{load<kWidth>(x + at, Way::kAligned),
                                   load<kWidth>(dy + at, Way::kAligned), 0xff};
    if (mask == nullptr) return result;
    if constexpr (kWidth == kPack) {
      result.passes = mask[at / kPack];
    } else {
      const std::size_t row = line / positions, bytes = (positions * channels + 7) / 8;
      const std::size_t i = at - row * positions * channels;
      result.passes = unsigned(mask[row * bytes + i / 8]) >> (i % 8);
    }
    return result;
  }
};

// Computes (x - mean) factor + shift of one channel.
struct Normalisation {
  float mean, factor, shift;
  template <class T>
  __device__ static Normalisation of(const BatchNormApply& a, std::size_t c) {
    const T* const scale = static_cast<const T*>(a.scale);
    const T* const shift = static_cast<const T*>(a.shift);
    return {float(a.moments[c]), float(double(wide(scale[c])) * a.moments[a.channels + c]),
            wide(shift[c])};
  }
  __device__ float operator()(float x) const { return (x - mean) * factor + shift; }
};

// Adds the second input unchanged ...
struct PlainOther {
  template <class T>
  __device__ static PlainOther of(const BatchNormApply&, std::size_t) {
    return {};
  }
  __device__ float operator()(float other) const { return other; }
};
// ... or normalized by the second batch norm of a pair.
struct NormalisedOther {
  Normalisation normal;
  template <class T>
  __device__ static NormalisedOther of(const BatchNormPairApply& a, std::size_t c) {
    return {Normalisation::of<T>(a.second, c)};
  }
  __device__ float operator()(float other) const { return normal(other); }
};

// Holds the loaded values of a line: x, and the other addend if there is one.
template <class T, bool kAdds>
struct ForwardLine {
  Pack<T, kPack> x;
  Pack<T, kAdds ? kPack : 1> other;
  __device__ float added(unsigned w) const {
    if constexpr (kAdds) {
      return wide(other.values[w]);
    } else {
      return 0;
    }
  }
};

// Computes the outputs of whole groups of channels, each of which is one byte of the mask.
template <class T, class Way, bool kAdds, class Other, class Arguments>
__device__ void normalise_groups(const Arguments& a) {
  constexpr unsigned kAtOnce = kAdds ? 2 : 4;
  const Threads<kPack> mine(a.channels);
  const T* const x = static_cast<const T*>(a.x);
  const T* const other = static_cast<const T*>(a.other);
  T* const y = static_cast<T*>(a.y);
  const std::size_t lines = std::size_t(a.state->examples) * a.positions;
  for (std::size_t tile = block(); tile < mine.tiles(); tile += blocks()) {
    if (!mine.works(tile)) continue;
    const std::size_t channel = mine.channel(tile);
    Normalisation normal[kPack];
    Other other_of[kPack];
    for (unsigned w = 0; w < kPack; ++w) normal[w] = Normalisation::of<T>(a, channel + w);
    for (unsigned w = 0; w < kPack; ++w) other_of[w] = Other::template of<T>(a, channel + w);
    each_line<kAtOnce>(
        std::size_t(block_row()) * mine.slots + mine.slot, std::size_t(block_rows()) * mine.slots,
        lines,
        [&](std::size_t line) {
          const std::size_t at = line * a.channels + channel;
          ForwardLine<T, kAdds> values;
          values.x = load<kPack>(x + at, Way::kAligned);
          if constexpr (kAdds) values.other = load<kPack>(other + at, Way::kAligned);
          return values;
        },
        [&](std::size_t line, const ForwardLine<T, kAdds>& values) {
          const std::size_t at = line * a.channels + channel;
          Pack<float, kPack> results;
          unsigned passes = 0;
          for (unsigned w = 0; w < kPack; ++w) {
            const float added = kAdds ? other_of[w](values.added(w)) : 0.0f;
            const float result = normal[w](wide(values.x.values[w])) + added;
            passes |= result > 0 ? 1u << w : 0u;
            results.values[w] = a.mask != nullptr && result < 0 ? 0.0f : result;
          }
          store(narrowed<T>(results), y + at, Way::kAligned);
          if (a.mask != nullptr) a.mask[at / kPack] = std::uint8_t(passes);
        });
  }
}

// Computes the outputs for any number of channels. A thread processes the elements of one mask byte
// at a time.
template <class T, class Other, class Arguments>
__device__ void normalise_bytes(const Arguments& a) {
  const T* const x = static_cast<const T*>(a.x);
  const T* const other = static_cast<const T*>(a.other);
  T* const y = static_cast<T*>(a.y);
  const std::size_t columns = a.positions * a.channels, bytes = (columns + 7) / 8;
  const std::size_t threads_of_all = std::size_t(blocks()) * block_rows() * threads();
  const std::size_t first = (std::size_t(block_row()) * blocks() + block()) * threads() + thread();
  const std::size_t end = std::size_t(a.state->examples) * bytes;
  for (std::size_t byte = first; byte < end; byte += threads_of_all) {
    const std::size_t row = byte / bytes, begin = (byte - row * bytes) * 8;
    const std::size_t count = least(8, columns - begin);
    unsigned passes = 0;
    for (unsigned k = 0; k < count; ++k) {
      const std::size_t i = begin + k, at = row * columns + i, c = i % a.channels;
      const float added = other == nullptr ? 0.0f : Other::template of<T>(a, c)(wide(other[at]));
      const float result = Normalisation::of<T>(a, c)(wide(x[at])) + added;
      passes |= result > 0 ? 1u << k : 0u;
      y[at] = narrow<T>(a.mask != nullptr && result < 0 ? 0.0f : result);
    }
    if (a.mask != nullptr) a.mask[byte] = std::uint8_t(passes);
  }
}

template <class T>
__device__ void run(const BatchNormApply& a) {
  go(a.channels, packs_at(a.x, a.other, a.y), [&](auto way) {
    using Way = decltype(way);
    if constexpr (Way::kWidth == kPack) {
      a.other != nullptr ? normalise_groups<T, Way, true, PlainOther>(a)
                         : normalise_groups<T, Way, false, PlainOther>(a);
    } else {
      normalise_bytes<T, PlainOther>(a);
    }
  });
}

template <class T>
__device__ void run(const BatchNormPairApply& a) {
  go(a.channels, packs_at(a.x, a.other, a.y), [&](auto way) {
    using Way = decltype(way);
    if constexpr (Way::kWidth == kPack) {
      normalise_groups<T, Way, true, NormalisedOther>(a);
    } else {
      normalise_bytes<T, NormalisedOther>(a);
    }
  });
}

// Computes dx = (g - level - (x - mean) slope) factor of one channel.
struct Backpropagation {
  float mean, factor, level, slope;
  template <class T>
  __device__ static Backpropagation of(const BatchNormBackpropagate& a, std::size_t c) {
    const double deviation = a.moments[a.channels + c];
    Backpropagation result{float(a.moments[c]),
                           float(double(wide(static_cast<const T*>(a.scale)[c])) * deviation), 0,
                           0};
    if (a.sums == nullptr) return result;
    result.level = float(a.sums[c] / *a.count);
    result.slope = float(a.sums[a.channels + c] / *a.count * deviation);
    return result;
  }
  __device__ float operator()(float g, float x) const {
    return (g - level - (x - mean) * slope) * factor;
  }
};

template <class T, class Way>
__device__ void backpropagate(const BatchNormBackpropagate& a) {
  constexpr unsigned kWidth = Way::kWidth;
  const Threads<kWidth> mine(a.channels);
  T* const dx = static_cast<T*>(a.dx);
  T* const dother = static_cast<T*>(a.dother);
  const Gradients<T> from{static_cast<const T*>(a.x), static_cast<const T*>(a.dy), a.mask,
                          a.positions, a.channels};
  const std::size_t lines = std::size_t(a.state->examples) * a.positions;
  for (std::size_t tile = block(); tile < mine.tiles(); tile += blocks()) {
    if (!mine.works(tile)) continue;
    const std::size_t channel = mine.channel(tile);
    Backpropagation back[kWidth];
    for (unsigned w = 0; w < kWidth; ++w) back[w] = Backpropagation::of<T>(a, channel + w);
    each_line<2>(
        std::size_t(block_row()) * mine.slots + mine.slot, std::size_t(block_rows()) * mine.slots,
        lines, [&](std::size_t line) { return from.template read<Way>(line, channel); },
        [&](std::size_t line, const GradientLine<T, kWidth>& values) {
          const std::size_t at = line * a.channels + channel;
          Pack<float, kWidth> of_x, of_other;
          for (unsigned w = 0; w < kWidth; ++w) {
            of_other.values[w] = values.passed(w);
            of_x.values[w] = back[w](of_other.values[w], wide(values.x.values[w]));
          }
          if (dx != nullptr) store(narrowed<T>(of_x), dx + at, Way::kAligned);
          if (dother != nullptr) store(narrowed<T>(of_other), dother + at, Way::kAligned);
        });
  }
}

template <class T>
__device__ void run(const BatchNormBackpropagate& a) {
  go(a.channels, packs_at(a.x, a.dy, a.dx, a.dother),
     [&](auto way) { backpropagate<T, decltype(way)>(a); });
}

}  // namespace lockstep::engine::cuda
