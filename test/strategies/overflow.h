// SPDX-License-Identifier: MIT
// The mean squared error, whose gradient overflows in backward at some steps, on one rank alone:
// the loss itself stays finite. For one run.
#pragma once
#include <atomic>
#include <memory>
#include <set>

#include "engine/nn/loss.h"

namespace lockstep::test {

// `part`: of the loss, by which the gradient is multiplied, too.
std::shared_ptr<const engine::Loss> overflowing(std::set<std::int64_t> steps, double part = 1);

}  // namespace lockstep::test
