// SPDX-License-Identifier: MIT
// The kernels of pointwise.h except dropout.
#pragma once
#include <cmath>
#include <cstddef>
#include <numbers.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/pack.cuh"
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
  constexpr unsigned kMany = 4;  // 16 bytes of input
  T* const to = static_cast<T*>(a.to);
  const std::size_t packs = packs_at(a.from, to) ? a.count / kMany : 0;
  for (std::size_t p = first_index(); p < packs; p += index_stride())
    store(narrowed<T>(load<kMany>(a.from + p * kMany, true)), to + p * kMany, true);
  for (std::size_t i = packs * kMany + first_index(); i < a.count; i += index_stride())
    to[i] = narrow<T>(a.from[i]);
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
