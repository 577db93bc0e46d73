// SPDX-License-Identifier: MIT
// The functions of engine/cuda/kernels/device/group_matrices.cuh for kernels in the emulator: each
// thread reads the operands of its sums itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers.cuh>

#include "engine/base/error.h"
#include "test/engine/cuda/emulator.h"

namespace lockstep::engine::cuda {

inline constexpr bool kHasGroups = true;
inline constexpr unsigned kGroupThreads = 128;

class GroupMatrix {
 public:
  GroupMatrix(const std::byte* at, unsigned summed, unsigned kept)
      : at_(at), summed_(summed), kept_(kept) {
    invariant((reinterpret_cast<std::uintptr_t>(at) | summed | kept) % 16 == 0,
              "a matrix that is not aligned");
    // The instruction has 14 bits for each, in units of 16 bytes.
    invariant(summed < 1 << 18 && kept < 1 << 18, "squares that lie too far apart");
  }
  GroupMatrix further(unsigned bytes) const { return {at_ + bytes, summed_, kept_}; }

  // Returns the element at `summed` along the summed direction and `kept` along the other one.
  // `kAcross`: pieces run along the other direction.
  template <class T, bool kAcross>
  float number(unsigned summed, unsigned kept) const {
    const unsigned piece = kAcross ? summed % 8 : kept % 8, place = kAcross ? kept % 8 : summed % 8;
    T value;
    std::memcpy(&value, at_ + summed / 8 * summed_ + kept / 8 * kept_ + piece * 16 + place * 2, 2);
    return wide(value);
  }

 private:
  const std::byte* at_;
  unsigned summed_, kept_;
};

inline unsigned of_first_lane(unsigned value) {
  const auto first = unsigned(emulated_exchange(value, {Shuffle::Kind::kXor, 0, sizeof value}));
  invariant(first == value, "lanes of a warp with a value each");
  return value;
}

inline void show_to_group() {}
template <unsigned kCount>
void fence_sums(float (&)[kCount]) {}
inline void begin_products() {
  invariant(emulated_place().threads % kGroupThreads == 0, "a group that is not whole");
}
inline void end_products() {}
inline void wait_for_products() {}

template <class T, unsigned kColumns, bool kTurnA, bool kTurnB>
void multiply_add(float (&sums)[kColumns / 2], const GroupMatrix& a, const GroupMatrix& b) {
  const unsigned thread = emulated_place().thread % kGroupThreads, lane = thread % 32;
  for (unsigned i = 0; i < kColumns / 2; ++i) {
    const unsigned row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8;
    const unsigned column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k)
      sum += a.number<T, kTurnA>(k, row) * b.number<T, kTurnB>(k, column);
    sums[i] += sum;
  }
}

}  // namespace lockstep::engine::cuda
