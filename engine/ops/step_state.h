// SPDX-License-Identifier: MIT
// All that changes from step to step. Kernels get its address, never its values, so that a captured
// step can be replayed with nothing but these words changed. One per replica; the loop writes it
// before a step, the replica's kernels read it.
#pragma once
#include <cstdint>

namespace lockstep::engine {

struct StepState {
  std::int64_t step = 0;              // of the training run, from 0
  std::int64_t examples = 0;          // rows of this replica that count; the rest are ignored
  double inverse_examples = 0;        // 1 / examples of the whole batch, over all replicas
  double rate = 0;                    // of learning
  double loss_scale = 1;              // of low precision; gradients come multiplied by it
  const std::int64_t* ids = nullptr;  // which example of the data set each row is; fixed address
  bool operator==(const StepState&) const = default;
};

}  // namespace lockstep::engine
