// SPDX-License-Identifier: MIT
// Operations that are rounded separately, to nearest, so that no compiler fuses them. Results thus
// have the same bits on every device. The tests have a file of the same name.
#pragma once

namespace lockstep::engine::cuda {

__device__ inline float plus(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ inline double plus(double a, double b) {
  return __dadd_rn(a, b);
}
__device__ inline float minus(float a, float b) {
  return __fsub_rn(a, b);
}
__device__ inline double minus(double a, double b) {
  return __dsub_rn(a, b);
}
__device__ inline float times(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline double times(double a, double b) {
  return __dmul_rn(a, b);
}
__device__ inline float divided(float a, float b) {
  return __fdiv_rn(a, b);
}
__device__ inline double divided(double a, double b) {
  return __ddiv_rn(a, b);
}
__device__ inline float root(float a) {
  return __fsqrt_rn(a);
}
__device__ inline double root(double a) {
  return __dsqrt_rn(a);
}

// Returns a b + c, rounded once.
__device__ inline double fused(double a, double b, double c) {
  return __fma_rn(a, b, c);
}

}  // namespace lockstep::engine::cuda
