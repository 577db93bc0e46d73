// SPDX-License-Identifier: MIT
// Reductions of the module's type T, computed in float32. A thread loads some neighboring elements
// of all sources before it adds them. Sums load 16 bytes per source. Updates load four elements, so
// that neighboring threads access neighboring float32 values.
#pragma once
#include <cstddef>
#include <exact.cuh>
#include <grid.cuh>

#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/reduce.h"
#include "engine/cuda/kernels/reduce_any.cuh"
#include "engine/cuda/kernels/tree.cuh"
#include "engine/cuda/kernels/update.cuh"

namespace lockstep::engine::cuda {

template <class T, unsigned kWidth>
__device__ void store_all(const Targets& to, std::size_t i, const Pack<T, kWidth>& pack) {
  for (unsigned t = 0; t < to.count; ++t) store(pack, static_cast<T*>(to.at[t]) + i, true);
}

// Multiplies by `scale` as in engine/ops/reduce.h. For float32 the product is float64, unless
// float32 represents the scale exactly and thus gives the same result.
template <class T>
class SumEnd {
 public:
  __device__ explicit SumEnd(const ReduceSum& a)
      : scale_(a.scale),
        narrow_scale_(float(a.scale)),
        scales_(a.scale != 1),
        narrow_(sizeof(T) == 2 || double(narrow_scale_) == a.scale),
        rounds_(a.rounds) {}
  // Returns whether the only source is copied bit by bit, since nothing changes it.
  __device__ bool copies(const Sources& from) const {
    return from.count == 1 && !scales_ && !rounds_;
  }
  __device__ float operator()(float sum) const {
    if (rounds_) sum = wide(narrow<BFloat16>(sum));
    if (!scales_) return sum;
    return narrow_ ? times(sum, narrow_scale_) : float(times(double(sum), scale_));
  }

 private:
  double scale_;
  float narrow_scale_;
  bool scales_, narrow_, rounds_;
};

template <class T>
__device__ void run(const ReduceSum& a) {
  CommonStart start(static_cast<const T*>(a.from.at[0]));
  start.meet<T>(a.from, a.to);
  const SumEnd<T> end(a);
  const bool copies = end.copies(a.from);
  each_pack<16 / sizeof(T)>(start.of(a.count), a.count, [&](auto width, std::size_t i) {
    if (copies) {
      store_all(a.to, i, load<width()>(static_cast<const T*>(a.from.at[0]) + i, true));
      return;
    }
    Pack<float, width()> sum = sum_at<T, width()>(a.from, i);
    for (unsigned w = 0; w < width(); ++w) sum.values[w] = end(sum.values[w]);
    store_all(a.to, i, narrowed<T>(sum));
  });
}

template <class T>
__device__ void run(const ReduceSquares& a) {
  double* const values = shared<double, kBlock>();
  const bool copies = a.from.count == 1;
  for (std::size_t b = block(); b == 0 || b * kBlock < a.count; b += blocks()) {
    const std::size_t begin = b * kBlock;
    const unsigned here = unsigned(a.count - begin < kBlock ? a.count - begin : kBlock);
    for (unsigned i = thread(); i < here; i += threads()) {
      Pack<T, 1> result;
      if (copies) {
        result = load<1>(static_cast<const T*>(a.from.at[0]) + begin + i, false);
      } else {
        result = narrowed<T>(sum_at<T, 1>(a.from, begin + i));
      }
      store_all(a.to, begin + i, result);
      values[i] = double(wide(result.values[0]));
    }
    add_squares(values, here, a.squares + b * a.step);
  }
}

// Returns the weights that the rule reads: the masters for 16-bit types.
template <class T>
__device__ auto old_weights(const UpdateTerms& terms) {
  if constexpr (sizeof(T) == 2) {
    return terms.master;
  } else {
    return static_cast<const T*>(terms.weight);
  }
}

template <class T>
__device__ void run(const ReduceUpdate& a) {
  const auto old = old_weights<T>(a.terms);
  float* const slots[] = {static_cast<float*>(a.terms.slots[0]),
                          static_cast<float*>(a.terms.slots[1])};
  CommonStart start(static_cast<const T*>(a.from.at[0]));
  start.meet<T>(a.from, a.to);
  const Rule<float> rule(a.terms);
  if (rule.skips()) return;
  start.meet(old);
  for (unsigned k = 0; k < rule.slots(); ++k) start.meet(slots[k]);
  each_pack<4>(start.of(a.count), a.count, [&](auto width, std::size_t i) {
    const Pack<float, width()> sum = sum_at<T, width()>(a.from, i);
    Pack<float, width()> weight = widened(load<width()>(old + i, true));
    Pack<float, width()> kept[UpdateRule::kMaxSlots] = {};
    for (unsigned k = 0; k < rule.slots(); ++k) kept[k] = load<width()>(slots[k] + i, true);
    Decays decays(a.terms, i);
    for (unsigned w = 0; w < width(); ++w) {
      Slots<float> moved{{kept[0].values[w], kept[1].values[w]}};
      weight.values[w] = rule.next(sum.values[w], weight.values[w], decays.at(i + w), moved);
      kept[0].values[w] = moved.values[0], kept[1].values[w] = moved.values[1];
    }
    for (unsigned k = 0; k < rule.slots(); ++k) store(kept[k], slots[k] + i, true);
    if constexpr (sizeof(T) == 2) store(weight, old + i, true);
    store_all(a.to, i, narrowed<T>(weight));
  });
}

}  // namespace lockstep::engine::cuda
