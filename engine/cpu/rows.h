// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>

namespace lockstep::engine::cpu {

// Counts the rows in use and the planned rows of a batch. Kernels are chosen by the planned rows
// alone, so that a short batch uses the same ones.
struct Rows {
  std::size_t used = 0, planned = 0;
};

}  // namespace lockstep::engine::cpu
