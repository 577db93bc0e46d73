// SPDX-License-Identifier: MIT
// Bodies of the kernels in pointwise.h but dropout.
#pragma once
#include <cmath>
#include <cstddef>
#include <numbers.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/pointwise.h"

namespace lockstep::engine::cuda {

__device__ inline std::size_t elements_in_use(const StepState* state, std::size_t columns) {
  return std::size_t(state->examples) * columns;
}

template <class T>
__device__ void run(const ReluForward& a) {
  const auto relu = [](T x) { return wide(x) < 0 ? narrow<T>(0.0f) : x; };
  map_values(elements_in_use(a.state, a.columns), static_cast<T*>(a.y), relu,
             static_cast<const T*>(a.x));
}

template <class T>
__device__ void run(const ReluGradient& a) {
  const auto gradient = [](T y, T dy) { return wide(y) > 0 ? dy : narrow<T>(0.0f); };
  map_values(elements_in_use(a.state, a.columns), static_cast<T*>(a.dx), gradient,
             static_cast<const T*>(a.y), static_cast<const T*>(a.dy));
}

template <class T>
__device__ void run(const TanhForward& a) {
  const auto tanh = [](T x) { return narrow<T>(std::tanh(wide(x))); };
  map_values(elements_in_use(a.state, a.columns), static_cast<T*>(a.y), tanh,
             static_cast<const T*>(a.x));
}

template <class T>
__device__ void run(const TanhGradient& a) {
  const auto gradient = [](T y, T dy) { return narrow<T>(wide(dy) * (1 - wide(y) * wide(y))); };
  map_values(elements_in_use(a.state, a.columns), static_cast<T*>(a.dx), gradient,
             static_cast<const T*>(a.y), static_cast<const T*>(a.dy));
}

template <class T>
__device__ void run(const Add& a) {
  const auto add = [](T x, T y) { return narrow<T>(wide(x) + wide(y)); };
  map_values(elements_in_use(a.state, a.columns), static_cast<T*>(a.y), add,
             static_cast<const T*>(a.a), static_cast<const T*>(a.b));
}

template <class T>
__device__ void run(const Convert& a) {
  for (std::size_t i = first_index(); i < a.count; i += index_stride()) {
    static_cast<T*>(a.to)[i] = narrow<T>(a.from[i]);
  }
}

template <class T>
__device__ void run(const TakeBatch& a) {
  run<T>(a.inputs);
  for (const TakeBatch::Words& words : a.words) {
    for (std::size_t i = first_index(); i < words.count; i += index_stride()) {
      words.to[i] = words.from[i];
    }
  }
}

}  // namespace lockstep::engine::cuda
