// SPDX-License-Identifier: MIT
// The report of a kernel that found an invalid number from a file, since it cannot throw. It is one
// word of GPU memory. The host sets it to kNone beforehand and reads it when it waits for the GPU.
// The kernel continues as if the number were 0.
#pragma once
#include <cstdint>

namespace lockstep::engine::cuda {

struct Problem {
  static constexpr std::uint64_t kNone = ~std::uint64_t(0);
  std::uint64_t first = kNone;  // the least index of a bad number
};

}  // namespace lockstep::engine::cuda
