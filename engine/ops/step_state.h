// SPDX-License-Identifier: MIT
// The values that change from step to step. Kernels get its address, so that a captured step can be
// replayed after only these words change. Each replica has one; the loop writes it before a step,
// and the replica's kernels read it.
#pragma once
#include <cstdint>

namespace lockstep::engine {

struct StepState {
  std::int64_t step = 0;              // step of the run, from 0
  std::int64_t examples = 0;          // rows in use of this replica
  double inverse_examples = 0;        // 1 / global batch
  double rate = 0;                    // learning rate
  double loss_scale = 1;              // factor of the gradients (loss scaling)
  const std::int64_t* ids = nullptr;  // id of each row's example; fixed address
  bool operator==(const StepState&) const = default;
};

}  // namespace lockstep::engine
