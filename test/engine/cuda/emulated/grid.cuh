// SPDX-License-Identifier: MIT
// The functions of engine/cuda/kernels/device/grid.cuh for kernels in the emulator.
#pragma once
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/base/error.h"
#include "test/engine/cuda/emulator.h"

namespace lockstep::engine::cuda {

inline unsigned block() {
  return emulated_place().block;
}
inline unsigned blocks() {
  return emulated_place().blocks;
}
inline unsigned block_row() {
  return emulated_place().block_row;
}
inline unsigned block_rows() {
  return emulated_place().block_rows;
}
inline unsigned thread() {
  return emulated_place().thread;
}
inline unsigned threads() {
  return emulated_place().threads;
}

inline void barrier() {
  emulated_barrier();
}

template <class V>
V emulated_shuffle(V value, Shuffle shuffle) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8);
  static_assert(std::is_trivially_copyable_v<V>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulated_exchange(bits, shuffle);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void warp_barrier() {
  emulated_exchange(0, {Shuffle::Kind::kXor, 0, sizeof(std::uint64_t)});
}

template <class V>
V shuffle_down(V value, unsigned distance) {
  return emulated_shuffle(value, {Shuffle::Kind::kDown, distance, sizeof(V)});
}
template <class V>
V shuffle_xor(V value, unsigned mask) {
  return emulated_shuffle(value, {Shuffle::Kind::kXor, mask, sizeof(V)});
}

template <class V>
V read_aligned(const V* from) {
  invariant(reinterpret_cast<std::uintptr_t>(from) % alignof(V) == 0,
            "an access that is not aligned");
  return *from;
}

template <class V>
V read_wide(const V* from) {
  static_assert(sizeof(V) == 16);
  invariant(reinterpret_cast<std::uintptr_t>(from) % 16 == 0, "an access that is not aligned");
  return *from;
}

// Returns a shared array; the address of `key` identifies it.
template <class V, std::size_t kCount, int kWhich = 0>
V* shared() {
  static_assert(std::is_trivially_copyable_v<V>);
  static constexpr char key = 0;
  return static_cast<V*>(emulated_shared(&key, kCount * sizeof(V)));
}

inline void atomic_add(std::uint64_t* to, std::uint64_t value) {
  std::atomic_ref(*to).fetch_add(value, std::memory_order_relaxed);
}
inline std::uint32_t count_up(std::uint32_t* to) {
  return std::atomic_ref(*to).fetch_add(1, std::memory_order_acq_rel);
}
inline unsigned lowest_bit(std::uint32_t bits) {
  return unsigned(std::countr_zero(bits));
}
inline double read_fresh(const double* from) {
  return *from;
}
inline void atomic_min(std::uint64_t* to, std::uint64_t value) {
  std::atomic_ref least(*to);
  std::uint64_t found = least.load(std::memory_order_relaxed);
  while (value < found && !least.compare_exchange_weak(found, value, std::memory_order_relaxed)) {
  }
}

}  // namespace lockstep::engine::cuda
