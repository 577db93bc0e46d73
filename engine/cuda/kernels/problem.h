// SPDX-License-Identifier: MIT
// How a kernel tells that a number from a file is none that it may be: it cannot throw. One word of
// the GPU's memory, which the host sets to kNone before, and reads when it waits for the GPU. The
// kernel goes on as if the number were 0.
#pragma once
#include <cstdint>

namespace lockstep::engine::cuda {

struct Problem {
  static constexpr std::uint64_t kNone = ~std::uint64_t(0);
  std::uint64_t first = kNone;  // the least index of a bad number
};

}  // namespace lockstep::engine::cuda
