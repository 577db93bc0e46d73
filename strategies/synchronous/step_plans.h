// SPDX-License-Identifier: MIT
// The plans of a step whose choices are made (step_design.h): sums and updates of buckets,
// reductions of layers, and what a step adds beside them. A pure function.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "strategies/synchronous/step_design.h"

namespace lockstep::strategies {

struct PlanChoices {
  std::string vendor;                 // the library whose sums are taken; empty: ours
  std::optional<engine::DType> wire;  // of gradients between hosts; else as they are
  std::function<std::string(std::size_t bytes)> algorithm;  // of sums that are not a vendor's
};

// Adds the plans to a design, with where they lie in the exchange and the bytes that they need.
void add_plans(const DesignInput& input, const PlanChoices& choices, StepDesign& design);

}  // namespace lockstep::strategies
