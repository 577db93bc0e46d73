// SPDX-License-Identifier: MIT
// Reductions of any type, by any operation, with any epilogue. Each thread computes one element at
// a time, in the type itself; 16-bit types use float32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exact.cuh>
#include <grid.cuh>
#include <type_traits>

#include "engine/cuda/kernels/reduce.h"
#include "engine/cuda/kernels/tree.cuh"
#include "engine/cuda/kernels/update.cuh"

namespace lockstep::engine::cuda {

template <class T>
using Computed = std::conditional_t<sizeof(T) == 2, float, T>;

template <class T>
__device__ Computed<T> computed(T value) {
  if constexpr (sizeof(T) == 2) {
    return wide(value);
  } else {
    return value;
  }
}
template <class T>
__device__ T rounded(Computed<T> value) {
  if constexpr (sizeof(T) == 2) {
    return narrow<T>(value);
  } else {
    return value;
  }
}

// Combines two numbers. Integers wrap around like unsigned ones; NaN wins over all numbers.
template <class Number>
__device__ Number joined(ReduceOp op, Number a, Number b) {
  if (op == ReduceOp::kMin) return b < a || b != b ? b : a;
  if (op == ReduceOp::kMax) return b > a || b != b ? b : a;
  if constexpr (std::is_integral_v<Number>) {
    using Wrapping = std::make_unsigned_t<Number>;
    const Wrapping x = Wrapping(a), y = Wrapping(b);
    return Number(op == ReduceOp::kSum ? x + y : x * y);
  } else {
    return op == ReduceOp::kSum ? plus(a, b) : times(a, b);
  }
}

// Combines element i of all sources.
template <class T>
__device__ Computed<T> combined(const ReduceAny& a, std::size_t i) {
  return balanced<Computed<T>>(
      a.from.count, [&](unsigned s) { return computed(static_cast<const T*>(a.from.at[s])[i]); },
      [&](Computed<T> x, Computed<T> y) { return joined(a.op, x, y); });
}

template <class T>
__device__ void store_each(const Targets& to, std::size_t i, T value) {
  for (unsigned t = 0; t < to.count; ++t) static_cast<T*>(to.at[t])[i] = value;
}

// Returns the sum of element i after the epilogue.
template <class T>
__device__ T ended(const ReduceAny& a, std::size_t i) {
  const bool as_is = a.epilogue == Epilogue::kNone || a.epilogue == Epilogue::kSquares;
  if (a.from.count == 1 && as_is) return static_cast<const T*>(a.from.at[0])[i];
  const Computed<T> sum = combined<T>(a, i);
  if constexpr (std::is_same_v<T, float>) {
    if (a.epilogue == Epilogue::kRound) return wide(narrow<BFloat16>(sum));
    if (a.epilogue == Epilogue::kScale) return float(times(double(sum), a.scale));
  } else if constexpr (!std::is_integral_v<T>) {
    if (a.epilogue == Epilogue::kScale) return rounded<T>(times(sum, Computed<T>(a.scale)));
  }
  return rounded<T>(sum);
}

template <class T>
__device__ void update_each(const ReduceAny& a) {
  using Number = Computed<T>;
  const Rule<Number> rule(a.terms);
  if (rule.skips()) return;
  Number* const first = static_cast<Number*>(a.terms.slots[0]);
  Number* const second = static_cast<Number*>(a.terms.slots[1]);
  const std::size_t step = std::size_t(blocks()) * threads();
  for (std::size_t i = std::size_t(block()) * threads() + thread(); i < a.count; i += step) {
    Slots<Number> slots{};
    if (rule.slots() > 0) slots.values[0] = first[i];
    if (rule.slots() > 1) slots.values[1] = second[i];
    Number old;
    if constexpr (sizeof(T) == 2) {
      old = a.terms.master[i];
    } else {
      old = static_cast<const T*>(a.terms.weight)[i];
    }
    const Number weight = rule.next(combined<T>(a, i), old, Decays(a.terms, i).at(i), slots);
    if (rule.slots() > 0) first[i] = slots.values[0];
    if (rule.slots() > 1) second[i] = slots.values[1];
    if constexpr (sizeof(T) == 2) a.terms.master[i] = weight;
    store_each(a.to, i, rounded<T>(weight));
  }
}

template <class T>
__device__ void reduce_each(const ReduceAny& a) {
  if constexpr (!std::is_integral_v<T>)
    if (a.epilogue == Epilogue::kUpdate) return update_each<T>(a);
  double* const values = shared<double, kBlock>();
  for (std::size_t b = block(); b == 0 || b * kBlock < a.count; b += blocks()) {
    const std::size_t begin = b * kBlock;
    const unsigned here = unsigned(a.count - begin < kBlock ? a.count - begin : kBlock);
    for (unsigned i = thread(); i < here; i += threads()) {
      const T result = ended<T>(a, begin + i);
      store_each(a.to, begin + i, result);
      values[i] = double(computed(result));
    }
    if (a.epilogue == Epilogue::kSquares) add_squares(values, here, a.squares + b * a.step);
  }
}

template <class From, class To>
__device__ void convert_each(const ReduceAny& a) {
  const From* const from = static_cast<const From*>(a.from.at[0]);
  const std::size_t step = std::size_t(blocks()) * threads();
  for (std::size_t i = std::size_t(block()) * threads() + thread(); i < a.count; i += step)
    store_each(a.to, i, narrow<To>(wide(from[i])));
}

template <class T>
__device__ void run(const ReduceAny& a) {
  if (a.target != a.dtype) {
    return a.dtype == DType::kFloat32 ? convert_each<float, BFloat16>(a)
                                      : convert_each<BFloat16, float>(a);
  }
  switch (a.dtype) {
    case DType::kFloat32:
      return reduce_each<float>(a);
    case DType::kFloat64:
      return reduce_each<double>(a);
    case DType::kInt32:
      return reduce_each<std::int32_t>(a);
    case DType::kInt64:
      return reduce_each<std::int64_t>(a);
    case DType::kFloat16:
      return reduce_each<Half>(a);
    case DType::kBFloat16:
      return reduce_each<BFloat16>(a);
  }
}

}  // namespace lockstep::engine::cuda
