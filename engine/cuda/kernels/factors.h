// SPDX-License-Identifier: MIT
// What updates need of all gradients (engine/ops/update_factors.h) on a GPU: arguments of its
// kernel. Addresses are the GPU's. With the bits of the processor, so sums have its order: a global
// norm is one thread's sum, of which the others bring the numbers.
#pragma once
#include <cstddef>
#include <tuple>

#include "engine/ops/update_factors.h"

namespace lockstep::engine::cuda {

// One block, of kThreads.
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
