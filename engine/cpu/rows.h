// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>

namespace lockstep::engine::cpu {

// Those that count, of those that the batch was planned for. What is chosen depends on the planned
// ones alone, so that a short batch goes by the same kernels.
struct Rows {
  std::size_t used = 0, planned = 0;
};

}  // namespace lockstep::engine::cpu
