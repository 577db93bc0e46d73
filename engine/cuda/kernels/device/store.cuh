// SPDX-License-Identifier: MIT
// Stores in a single access. Compilers split arrays of narrow values into several. The tests have a
// file of the same name.
#pragma once
#include <bit>

namespace lockstep::engine::cuda {

// Stores 16 bytes at an address aligned to 16.
template <class V>
__device__ inline void write_wide(V* to, const V& value) {
  static_assert(sizeof(V) == sizeof(uint4));
  __stwb(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(value));
}

// Stores 8 bytes at an address aligned to 8.
template <class V>
__device__ inline void write_half(V* to, const V& value) {
  static_assert(sizeof(V) == sizeof(uint2));
  __stwb(reinterpret_cast<uint2*>(to), std::bit_cast<uint2>(value));
}

}  // namespace lockstep::engine::cuda
