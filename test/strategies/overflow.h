// SPDX-License-Identifier: MIT
// The mean squared error with a gradient that overflows in backward at some steps, on one rank
// alone. The loss itself stays finite. An object serves one run.
#pragma once
#include <atomic>
#include <memory>
#include <set>

#include "engine/nn/loss.h"

namespace lockstep::test {

// Returns a loss for one run. `part` multiplies the loss and its gradient.
std::shared_ptr<const engine::Loss> overflowing(std::set<std::int64_t> steps, double part = 1);

}  // namespace lockstep::test
