// SPDX-License-Identifier: MIT
// The balanced tree of engine/ops/reduce.h, and the distribution of a reduction's elements over
// threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>
#include <type_traits>

#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/reduce.h"

namespace lockstep::engine::cuda {

// Returns how many sums are complete after source `i` of `count`. That often the last two pending
// sums are joined. It equals the number of right turns on the path from the root to the source
// after the last left turn.
__device__ inline unsigned complete_after(unsigned i, unsigned count) {
  unsigned complete = 0;
  while (count > 1) {
    const unsigned half = (count + 1) / 2;
    if (i < half) {
      count = half;
      complete = 0;
    } else {
      i -= half;
      count -= half;
      ++complete;
    }
  }
  return complete;
}

// Reduces any number of sources, one after the other, by join(left, right) of the values of
// read(i).
template <class Value, class Read, class Join>
__device__ Value balanced(unsigned count, Read read, Join join) {
  Value open[kMostOfTree];
  unsigned used = 0;
  for (unsigned i = 0; i < count; ++i) {
    open[used++] = read(i);
    for (unsigned complete = complete_after(i, count); complete > 0; --complete) {
      --used;
      open[used - 1] = join(open[used - 1], open[used]);
    }
  }
  return open[0];
}

// Reduces kCount sources from `first` on, in registers.
template <unsigned kCount, class Read, class Join>
__device__ auto balanced_of(unsigned first, Read read, Join join) {
  if constexpr (kCount == 1) {
    return read(first);
  } else {
    constexpr unsigned kHalf = (kCount + 1) / 2;
    const auto left = balanced_of<kHalf>(first, read, join);
    return join(left, balanced_of<kCount - kHalf>(first + kHalf, read, join));
  }
}

template <unsigned kWidth>
__device__ Pack<float, kWidth> added(const Pack<float, kWidth>& a, const Pack<float, kWidth>& b) {
  Pack<float, kWidth> sum;
  for (unsigned w = 0; w < kWidth; ++w) sum.values[w] = a.values[w] + b.values[w];
  return sum;
}

// Sums elements i, ..., i + kWidth - 1 of all sources, which have type T. Packs are aligned.
template <class T, unsigned kWidth>
__device__ Pack<float, kWidth> sum_at(const Sources& from, std::size_t i) {
  const auto read = [&](unsigned s) {
    return widened(load<kWidth>(static_cast<const T*>(from.at[s]) + i, true));
  };
  const auto join = [](const auto& a, const auto& b) { return added(a, b); };
  static_assert(kMostTogether == 8);
  switch (from.count) {
    case 1:
      return balanced_of<1>(0, read, join);
    case 2:
      return balanced_of<2>(0, read, join);
    case 3:
      return balanced_of<3>(0, read, join);
    case 4:
      return balanced_of<4>(0, read, join);
    case 5:
      return balanced_of<5>(0, read, join);
    case 6:
      return balanced_of<6>(0, read, join);
    case 7:
      return balanced_of<7>(0, read, join);
    case 8:
      return balanced_of<8>(0, read, join);
    default:
      return balanced<Pack<float, kWidth>>(from.count, read, join);
  }
}

// Finds the first element, among the first kPack, at which all arrays are aligned to 16 bytes.
class CommonStart {
 public:
  template <class T>
  __device__ explicit CommonStart(const T* array)
      : start_(unsigned(-reinterpret_cast<std::uintptr_t>(array) % 16 / sizeof(T))) {}
  template <class T>
  __device__ void meet(const T* array) {
    if (array != nullptr && !packs_at(array + start_)) common_ = false;
  }
  template <class T>
  __device__ void meet(const Sources& from, const Targets& to) {
    for (unsigned s = 0; s < from.count; ++s) meet(static_cast<const T*>(from.at[s]));
    for (unsigned t = 0; t < to.count; ++t) meet(static_cast<const T*>(to.at[t]));
  }
  // Returns that element, or `count` if there is none.
  __device__ std::size_t of(std::size_t count) const {
    return common_ && start_ < count ? start_ : count;
  }

 private:
  unsigned start_;
  bool common_ = true;
};

// Calls visit(Width<kMany>, i) for whole packs from `start` on, and visit(Width<1>, i) for the
// elements before and after them. One thread handles each.
template <unsigned kMany, class Visit>
__device__ void each_pack(std::size_t start, std::size_t count, Visit visit) {
  const std::size_t packs = (count - start) / kMany, singles = count - packs * kMany;
  const std::size_t step = std::size_t(blocks()) * threads();
  const std::size_t first = std::size_t(block()) * threads() + thread();
  for (std::size_t p = first; p < packs; p += step) visit(Width<kMany>(), start + p * kMany);
  for (std::size_t s = first; s < singles; s += step)
    visit(Width<1>(), s < start ? s : s + packs * kMany);
}

// Computes the processor's sum of squares: eight running sums, and a tree over them. All threads of
// a block call it; `values` [count] are in shared memory.
__device__ inline void add_squares(const double* values, unsigned count, double* squares) {
  constexpr unsigned kLanes = 8;
  double* const sums = shared<double, kLanes>();
  barrier();
  if (thread() < kLanes) {
    double sum = 0;
    for (unsigned i = thread(); i < count; i += kLanes)
      sum = plus(sum, times(values[i], values[i]));
    sums[thread()] = sum;
  }
  barrier();
  if (thread() == 0) {
    *squares =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
}

}  // namespace lockstep::engine::cuda
