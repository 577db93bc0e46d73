// SPDX-License-Identifier: MIT
// Stores as wide as they are written: a compiler makes several of an array of narrow values. The
// tests have a file of the same name.
#pragma once
#include <bit>

namespace lockstep::engine::cuda {

// 16 bytes, at an address aligned to that.
template <class V>
__device__ inline void write_wide(V* to, const V& value) {
  static_assert(sizeof(V) == sizeof(uint4));
  __stwb(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(value));
}

// 8 bytes.
template <class V>
__device__ inline void write_half(V* to, const V& value) {
  static_assert(sizeof(V) == sizeof(uint2));
  __stwb(reinterpret_cast<uint2*>(to), std::bit_cast<uint2>(value));
}

}  // namespace lockstep::engine::cuda
