// SPDX-License-Identifier: MIT
// Kernel arguments for the update factors that depend on all gradients
// (engine/ops/update_factors.h). Addresses are GPU addresses. Results have the processor's bits, so
// sums have its order: one thread adds a global norm, and the others load the numbers.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/ops/update_factors.h"

namespace lockstep::engine::cuda {

// Finds the factors with one block of kThreads.
struct FindFactors {
  static constexpr const char* kName = "find_factors";
  static constexpr unsigned kThreads = 256;
  UpdateRule rule;
  const StepState* state = nullptr;
  const double* squares = nullptr;
  std::size_t blocks = 0, segments = 0;
  UpdateMemory memory = {};
};

using FactorsKernels = std::tuple<FindFactors>;

}  // namespace lockstep::engine::cuda
