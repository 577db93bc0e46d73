// SPDX-License-Identifier: MIT
// The store of engine/cuda/kernels/device/store.cuh for kernels in the emulator. Like a GPU, it
// stops the program at an unaligned address.
#pragma once
#include <cstdint>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {

template <class V>
void write_wide(V* to, const V& value) {
  static_assert(sizeof(V) == 16);
  invariant(reinterpret_cast<std::uintptr_t>(to) % 16 == 0, "a store of 16 bytes between two");
  *to = value;
}

template <class V>
void write_half(V* to, const V& value) {
  static_assert(sizeof(V) == 8);
  invariant(reinterpret_cast<std::uintptr_t>(to) % 8 == 0, "a store of 8 bytes between two");
  *to = value;
}

}  // namespace lockstep::engine::cuda
