// SPDX-License-Identifier: MIT
// The conversions of engine/cuda/kernels/device/numbers.cuh, for kernels that run in the emulator:
// those of engine/base.
#pragma once
#include "engine/base/bfloat16.h"
#include "engine/base/half.h"

namespace lockstep::engine::cuda {

inline float wide(float value) {
  return value;
}
inline float wide(BFloat16 value) {
  return float(value);
}
inline float wide(Half value) {
  return float(value);
}

template <class T>
T narrow(float value) {
  return T(value);
}

}  // namespace lockstep::engine::cuda
