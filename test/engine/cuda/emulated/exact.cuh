// SPDX-License-Identifier: MIT
// The operations of engine/cuda/kernels/device/exact.cuh for kernels in the emulator. They are not
// inlined, so the compiler cannot fuse them with other operations.
#pragma once
#include <cmath>

namespace lockstep::engine::cuda {

template <class Number>
[[gnu::noinline]] Number plus(Number a, Number b) {
  return a + b;
}
template <class Number>
[[gnu::noinline]] Number minus(Number a, Number b) {
  return a - b;
}
template <class Number>
[[gnu::noinline]] Number times(Number a, Number b) {
  return a * b;
}
template <class Number>
Number divided(Number a, Number b) {
  return a / b;
}
template <class Number>
Number root(Number a) {
  return std::sqrt(a);
}

// Returns a b + c, rounded once.
inline double fused(double a, double b, double c) {
  return std::fma(a, b, c);
}

}  // namespace lockstep::engine::cuda
