// SPDX-License-Identifier: MIT
// The functions of engine/cuda/kernels/device/matrices.cuh for kernels in the emulator.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers.cuh>

#include "engine/base/error.h"
#include "test/engine/cuda/emulator.h"

namespace lockstep::engine::cuda {

inline std::byte* window() {
  return emulated_window();
}

inline void copy_async(std::byte* to, const void* from) {
  emulated_copy(to, from, 16);
}
inline void commit_copies() {
  emulated_commit();
}
template <unsigned kLeft>
void wait_for_copies() {
  emulated_wait(kLeft);
}

struct EmulatedMatrices {
  const std::byte* row = nullptr;
  std::uint32_t words[4] = {};
};

inline void load_transposed(std::uint32_t (&words)[4], const std::byte* row) {
  invariant(reinterpret_cast<std::uintptr_t>(row) % 16 == 0, "a row that is not aligned");
  EmulatedMatrices mine{row, {}};
  emulated_together(&mine, [](const std::array<void*, 32>& lanes) {
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned m = 0; m < 4; ++m) {
        std::array<std::uint16_t, 2> pair;
        for (unsigned k = 0; k < 2; ++k) {
          const unsigned from = 8 * m + 2 * (lane % 4) + k;
          const auto* const source = static_cast<const EmulatedMatrices*>(lanes[from])->row;
          std::memcpy(&pair[k], source + 2 * (lane / 4), 2);
        }
        std::memcpy(&static_cast<EmulatedMatrices*>(lanes[lane])->words[m], pair.data(), 4);
      }
    }
  });
  std::memcpy(words, mine.words, sizeof words);
}

template <class T>
struct EmulatedProduct {
  std::array<std::array<T, 2>, 4> a;
  std::array<std::array<T, 2>, 2> b;
  float* sums = nullptr;

  // Returns the lane's elements of a row of a and of a column of b.
  float of_a(bool lower, unsigned k) const { return wide(a[2 * (k / 8) + lower][k % 2]); }
  float of_b(unsigned k) const { return wide(b[k / 8][k % 2]); }
};

template <class T>
void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  using Product = EmulatedProduct<T>;
  Product mine;
  std::memcpy(mine.a.data(), a, sizeof a);
  std::memcpy(mine.b.data(), b, sizeof b);
  mine.sums = sums;
  emulated_together(&mine, [](const std::array<void*, 32>& lanes) {
    const auto at = [&](unsigned lane) { return static_cast<const Product*>(lanes[lane]); };
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = lane / 4, column = 2 * (lane % 4) + i % 2;
        float sum = 0;
        for (unsigned k = 0; k < 16; ++k) {
          const unsigned part = k % 8 / 2;
          sum += at(4 * row + part)->of_a(i >= 2, k) * at(4 * column + part)->of_b(k);
        }
        at(lane)->sums[i] += sum;
      }
    }
  });
}

}  // namespace lockstep::engine::cuda
