// SPDX-License-Identifier: MIT
// Batches for tests of kernels. Rows in use hold given values. Other rows and the memory around the
// batch hold NaN, and must be neither read nor overwritten. Also defines the grids, which must not
// affect results, and the precision of a type.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "engine/base/random.h"
#include "engine/ops/step_state.h"
#include "engine/tensor/tensor.h"
#include "test/engine/cuda/emulator.h"

namespace lockstep::engine::cuda {

using ElementTypes = testing::Types<float, BFloat16, Half>;

inline constexpr std::array<LaunchShape, 3> kGrids{{{1, 1, 32}, {3, 1, 64}, {5, 1, 256}}};

// Returns half of the distance between neighbors of numbers near 1.
template <class T>
double half_step() {
  return std::is_same_v<T, float> ? 0x1p-24 : std::is_same_v<T, Half> ? 0x1p-11 : 0x1p-8;
}

struct BatchSize {
  std::size_t examples, planned, columns;
};
inline constexpr std::array<BatchSize, 6> kSizes{
    {{0, 2, 3}, {1, 1, 1}, {3, 5, 7}, {2, 3, 64}, {9, 11, 12}, {33, 40, 10}}};

inline StepState state_of(const BatchSize& size) {
  StepState state;
  state.examples = std::int64_t(size.examples);
  return state;
}

template <class T>
class Batch {
 public:
  static constexpr std::size_t kAround = 16;

  // `shift` is the number of elements past an address aligned to 16 bytes.
  explicit Batch(BatchSize size, std::size_t shift = 0)
      : size_(size),
        shift_(shift),
        values_(size.planned * size.columns + 2 * kAround + shift, T(NAN)) {}
  Batch(BatchSize size, std::size_t shift, const std::function<double(std::size_t)>& value)
      : Batch(size, shift) {
    for (std::size_t i = 0; i < used(); ++i) data()[i] = T(float(value(i)));
  }

  T* data() { return values_.data() + kAround + shift_; }
  double operator[](std::size_t i) const { return double(values_[kAround + shift_ + i]); }
  std::size_t used() const { return size_.examples * size_.columns; }

  // Returns whether all elements that are not in use are still NaN.
  bool rest_is_untouched() const {
    const std::size_t first = kAround + shift_;
    bool untouched = true;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const bool in_use = i >= first && i < first + used();
      untouched &= in_use || std::isnan(float(values_[i]));
    }
    return untouched;
  }
  bool same_bits(const Batch& other) const {
    return values_.size() == other.values_.size() &&
           std::memcmp(values_.data(), other.values_.data(), values_.size() * sizeof(T)) == 0;
  }

 private:
  BatchSize size_;
  std::size_t shift_;
  std::vector<T> values_;
};

// Returns numbers from -3 to 3, every seventh of them 0; each key has another sequence.
inline std::function<double(std::size_t)> numbers(std::uint64_t key) {
  return [key](std::size_t i) {
    return (i + key) % 7 == 3 ? 0
                              : std::floor(6000 * uniform(random_bits(key, i, 0)[0])) / 1000 - 3;
  };
}

}  // namespace lockstep::engine::cuda
