// SPDX-License-Identifier: MIT
// Sums of the host's own numbers for a rank whose kernels work on a device's memory. Thread-safe.
// Costs a pass over the numbers, which are few.
#pragma once
#include "engine/ops/reduce.h"

namespace lockstep::collectives {

// Sums float64 numbers without an epilogue, with the bits that every device's kernel gives
// (engine/ops/reduce.h).
void sum_on_host(const engine::ReduceArguments& arguments);

}  // namespace lockstep::collectives
